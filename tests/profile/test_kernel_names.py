"""Names of kernels that different profilers agree on."""

import pytest

from ridgeline.profile import kernel_names
from ridgeline.profile.kernel_names import demangled, short_name


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("gemm", "gemm"),
        ("void at::native::elementwise_kernel<128, 4, (int)2>(int, float *)", "elementwise_kernel"),
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nhwc<float>(float const*)",
            "max_pool_forward_nhwc",
        ),
        (
            "void at::native::<unnamed>::max_pool_forward_nhwc<float>(const T1 *)",
            "max_pool_forward_nhwc",
        ),
        ("sm90_xmma_gemm_f16f16_tilesize64x64", "sm90_xmma_gemm_f16f16_tilesize64x64"),
        # names of cuDNN that a trace keeps as the compiler wrote them, being too long
        ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionE", "Kernel"),
        ("_ZN2at6native12_GLOBAL__N_110softmax_fwIfEEvPT_", "softmax_fw"),
        ("_Z6squarePfi", "square"),
        # what follows a name that is not nested are its arguments
        ("_Z8fmha_fwd6Params", "fmha_fwd"),
        ("fmha_fwd(Params)", "fmha_fwd"),
        # what it returns may be a template, too
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 2, f<3>>(Params)",
            "kernel",
        ),
        ("void outer<int>::inner<decltype(a->b)>(float)", "inner"),
        ("void cut_off_by_a_trace<int, std::array<float", "cut_off_by_a_trace"),
        ("_Zfoo", "_Zfoo"),
        ("<unnamed>::", "<unnamed>::"),
        ("", ""),
    ],
)
def test_the_name_that_both_profilers_agree_on(kernel: str, name: str) -> None:
    assert short_name(kernel) == name


def test_a_name_as_its_author_wrote_it() -> None:
    assert demangled("_Z1fIiEvT_") == "void f<int>(int)"
    assert demangled("_Znothing") == "_Znothing"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("_ZN2at6native12_GLOBAL__N_110softmax_fwIfEEvPT_", "softmax_fw"),
        ("_Z8fmha_fwd6Params", "fmha_fwd"),
    ],
)
def test_without_a_library_that_knows_names(
    monkeypatch: pytest.MonkeyPatch, kernel: str, name: str
) -> None:
    monkeypatch.setattr(kernel_names, "_library", lambda: None)
    assert short_name.__wrapped__(kernel) == name

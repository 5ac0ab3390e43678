"""Cost formulas as functions of shapes, one file per operator family.

PyTorch's operators (count/formulas/) and ONNX's (onnx/ops/) call the same functions, so that a
network costs the same through both. No torch and no onnx here. Conventions, once for all formulas:

* a multiply-add of a matrix product or convolution is one MAC and two FLOPs;
* every other addition, multiplication, division or comparison of floating-point
  numbers is one FLOP; work on integers and booleans is none;
* exp, log, erf, tanh, sin, sqrt and their kin are transcendentals, counted apart;
* every operand is read once and every result is written once, unless the formula says
  otherwise; views are free.
"""

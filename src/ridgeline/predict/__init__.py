"""How long a step takes that was not run: curves of operators, a calibration, a timeline."""

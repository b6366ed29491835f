"""How numbers are computed: precision, execution, optimiser steps, GPU kernels. Knows nothing of rewards or agents."""

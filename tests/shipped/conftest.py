"""What tests of the session need: the folders that tests of shipping build."""

from tests.shipping.conftest import large, masked, mean, on_the_cpu

__all__ = ["large", "masked", "mean", "on_the_cpu"]

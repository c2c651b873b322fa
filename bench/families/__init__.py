"""Small models of the families that people deploy: a registry of builders by name."""

from . import codecs, diffusion, language_models, recognition, synthesis, text_encoders, voices
from .family import FAMILIES, KINDS, Example

MODULES = (codecs, diffusion, language_models, recognition, synthesis, text_encoders, voices)
"""Each registers the families of one kind when it is imported."""

__all__ = ["FAMILIES", "KINDS", "MODULES", "Example"]

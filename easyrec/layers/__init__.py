"""Keras layers that know nothing of the configuration: each one equation, usable alone."""

from easyrec.layers.activation import activation_layer
from easyrec.layers.cross import CrossNetwork
from easyrec.layers.dice import Dice
from easyrec.layers.dot_interaction import DotInteraction
from easyrec.layers.dropout import Dropout
from easyrec.layers.experts import MultiGateMixtureOfExperts
from easyrec.layers.fm import FMInteraction
from easyrec.layers.mlp import MLP
from easyrec.layers.number_embedding import NumberEmbedding
from easyrec.layers.sequence_pooling import SequencePooling
from easyrec.layers.target_attention import TargetAttention
from easyrec.layers.unit_norm import UnitNorm

__all__ = [
    "MLP",
    "CrossNetwork",
    "Dice",
    "DotInteraction",
    "Dropout",
    "FMInteraction",
    "MultiGateMixtureOfExperts",
    "NumberEmbedding",
    "SequencePooling",
    "TargetAttention",
    "UnitNorm",
    "activation_layer",
]

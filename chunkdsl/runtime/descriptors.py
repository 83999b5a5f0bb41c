"""Tensor descriptors for users' kernels that take them from the host. Copied into the module."""

from __future__ import annotations

from triton.tools.tensor_descriptor import TensorDescriptor


def described(tensor, shape, block):
    """A descriptor of the first `shape` elements of a tensor whose rows are multiples of 16 bytes. Of a tensor without
    elements there is none: zeros as large as a block stand in, of which nothing can be stored beyond its bounds."""
    if tensor.numel() == 0 or 0 in shape:
        tensor, shape = tensor.new_zeros(block), block
    return TensorDescriptor(tensor, [*shape], [*tensor.stride()], [*block])


def even_rows(tensor):
    """The tensor, or the same in rows of a multiple of 16 bytes that begins at one: `described` needs that."""
    columns, each = tensor.shape[-1], 16 // tensor.element_size()
    if tensor.dim() < 2 or (columns % each == 0 and tensor.data_ptr() % 16 == 0):
        return tensor
    wide = tensor.new_zeros((*tensor.shape[:-1], columns + -columns % each))
    wide[..., :columns] = tensor
    return wide[..., :columns]

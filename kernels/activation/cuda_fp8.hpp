// Declares activations and their gradients that also write their results as factors of products in fp8
// (cuda/fp8_blocks.hpp): results are those of cuda/activation.hpp, and codes and scales are those of these
// results, without reading them again. A gated activation's width is a multiple of 128, the others' of 16; T
// is bf16 or f16, and all pointers are aligned to 16 bytes.
#pragma once

#include <optional>

#include "cuda/fp8_blocks.hpp"

namespace prun::cuda {

enum class Activation { gelu, swiglu, geglu };

// x is [rows, width] or, for a gated activation, [rows, 2, width]; y and its factor are [rows, width]. Its
// factor by_squares, where there is one, is that of rows_and_squares_to_fp8.
template <class T>
void activation_to_fp8(Activation kind, const T* x, T* y, std::int64_t rows, std::int64_t width,
                       const Fp8Factor& by_rows, const std::optional<Fp8Factor>& by_squares, Stream stream);

// dx has the shape of x; its factors are those of rows_and_columns_to_fp8. dx may be x or, for gelu, dy.
template <class T>
void activation_grad_to_fp8(Activation kind, const T* dy, const T* x, T* dx, std::int64_t rows,
                            std::int64_t width, const Fp8Factor& by_rows, const Fp8Factor& by_columns,
                            Stream stream);

}  // namespace prun::cuda

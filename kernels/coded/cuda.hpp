// Declares encode, decode and sum_decoded: numbers in blocks of codes with a scale each
// (prun/block_codes.hpp). Codes begin at a multiple of 4 bytes.
#pragma once

#include "cuda/launch.hpp"
#include "prun/block_codes.hpp"

namespace prun::cuda {

// Keeps the error of codes: it is added to the next numbers, and then replaced by the error of theirs,
// unless *keep is 0. Null: nothing is kept.
template <class C>
struct Feedback {
  C* error = nullptr;
  const double* keep = nullptr;
};

template <class T>
void encode(const T* x, void* codes, std::int64_t elements, Codes form, Feedback<Compute<T>> feedback,
            Stream stream);

// Sets y to the sum, in their order, of the numbers of `summands` codes of `elements` elements each, one
// behind the other.
template <class T>
void sum_decoded(const void* codes, T* y, std::int64_t elements, std::int64_t summands, Codes form,
                 Stream stream);

template <class T>
void decode(const void* codes, T* y, std::int64_t elements, Codes form, Stream stream) {
  sum_decoded(codes, y, elements, 1, form, stream);
}

}  // namespace prun::cuda

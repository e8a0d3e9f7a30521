// Declares document_starts, which gives for each position the first one of its document; a token ends a
// document. Where sequences have another order, `positions` says which position is at each place, and
// `places`, as long, is written; both are null where they are in order.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void document_starts(const std::int32_t* tokens, std::int32_t* starts, std::int64_t batch, std::int64_t seq,
                     std::int64_t end, const std::int32_t* positions, std::int32_t* places, Stream stream);

// Counts the separators before each position, at most types - 1; `positions` and `places` are as above.
struct TokenTypes {
  std::int64_t batch, seq, separator, types;
};
void token_types(const std::int32_t* tokens, std::int32_t* kinds, const TokenTypes& shape,
                 const std::int32_t* positions, std::int32_t* places, Stream stream);

// Sets y to x, `by` positions ahead in the same row and document: in [starts, ...), where these are not null.
// Where there is no such position y is `otherwise`.
struct Ahead {
  std::int64_t batch, seq, by;
  std::int32_t otherwise;
};
void ahead(const std::int32_t* x, std::int32_t* y, const Ahead& shape, const std::int32_t* starts,
           const std::int32_t* positions, std::int32_t* places, Stream stream);

}  // namespace prun::cuda

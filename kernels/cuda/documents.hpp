// document_starts gives for each position the first one of its document, which a token ends. Where sequences
// have another order, `positions` says which one is at each place, and `places`, of as many, is written; both
// are null where they are in order.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void document_starts(const std::int32_t* tokens, std::int32_t* starts, std::int64_t batch, std::int64_t seq,
                     std::int64_t end, const std::int32_t* positions, std::int32_t* places, Stream stream);

// Counts the separators before each position, at most types - 1; positions and places as above.
struct TokenTypes {
  std::int64_t batch, seq, separator, types;
};
void token_types(const std::int32_t* tokens, std::int32_t* kinds, const TokenTypes& shape,
                 const std::int32_t* positions, std::int32_t* places, Stream stream);

// y is x, `by` positions ahead in the same row and document: in [starts, ...), where these are not null.
// Where there is nothing it is `otherwise`.
struct Ahead {
  std::int64_t batch, seq, by;
  std::int32_t otherwise;
};
void ahead(const std::int32_t* x, std::int32_t* y, const Ahead& shape, const std::int32_t* starts,
           const std::int32_t* positions, std::int32_t* places, Stream stream);

}  // namespace prun::cuda

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

}  // namespace prun::cuda

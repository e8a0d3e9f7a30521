// document_starts: for each position the first one of its document, which a token ends.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

void document_starts(const std::int32_t* tokens, std::int32_t* starts, std::int64_t batch, std::int64_t seq,
                     std::int64_t end, Stream stream);

}  // namespace prun::cuda

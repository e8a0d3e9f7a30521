// Reduces a curve of millions of points to one that looks the same with a few thousand.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace prun {

// Returns which of `count` points stay, in order: of each of `buckets` equal runs of them the first, the
// last, the least and the greatest, and one that is not finite where there is any. All stay where they are
// few.
std::vector<std::size_t> points_to_show(std::size_t count, std::size_t buckets,
                                        const std::function<double(std::size_t)>& value);

}  // namespace prun

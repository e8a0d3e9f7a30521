#include "report/decimate.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

std::vector<std::size_t> points_to_show(std::size_t count, std::size_t buckets,
                                        const std::function<double(std::size_t)>& value) {
  constexpr std::size_t most_of_bucket = 5;
  std::vector<std::size_t> shown;
  if (count <= buckets * most_of_bucket) {
    for (std::size_t i = 0; i < count; ++i) shown.push_back(i);
    return shown;
  }
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket * count / buckets, end = (bucket + 1) * count / buckets;
    std::size_t least = count, greatest = count, odd = count;
    for (std::size_t i = begin; i < end; ++i) {
      const double here = value(i);
      if (!std::isfinite(here)) {
        if (odd == count) odd = i;
        continue;
      }
      if (least == count || here < value(least)) least = i;
      if (greatest == count || here > value(greatest)) greatest = i;
    }
    std::vector<std::size_t> of_bucket = {begin, end - 1, least, greatest, odd};
    std::erase(of_bucket, count);
    std::sort(of_bucket.begin(), of_bucket.end());
    of_bucket.erase(std::unique(of_bucket.begin(), of_bucket.end()), of_bucket.end());
    shown.insert(shown.end(), of_bucket.begin(), of_bucket.end());
  }
  return shown;
}

}  // namespace prun

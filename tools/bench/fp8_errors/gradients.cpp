#include "tools/bench/fp8_errors/gradients.hpp"

#include <cmath>
#include <map>

namespace prun::fp8_errors {

std::vector<Likeness> compare(const AllNumbers& gradients, const AllNumbers& reference,
                              const std::function<std::string(const NamedNumbers&)>& name) {
  struct Sums {
    double both = 0, own = 0, other = 0, apart = 0;
  };
  PRUN_CHECK(gradients.size() == reference.size(), "gradients of other tensors");
  std::vector<std::string> order;
  std::map<std::string, Sums> all;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const auto [at, is_new] = all.try_emplace(name(reference[t]));
    if (is_new) order.push_back(at->first);
    for (std::size_t i = 0; i < reference[t].numbers.size(); ++i) {
      const double x = gradients[t].numbers.at(i), y = reference[t].numbers[i];
      at->second.both += x * y;
      at->second.own += x * x;
      at->second.other += y * y;
      at->second.apart += (x - y) * (x - y);
    }
  }
  std::vector<Likeness> likenesses;
  for (const std::string& one : order) {
    const Sums& sums = all[one];
    const double sizes = std::sqrt(sums.own * sums.other);
    likenesses.push_back(
        {one, sizes == 0 ? 1 : sums.both / sizes, sums.other == 0 ? 0 : std::sqrt(sums.apart / sums.other)});
  }
  return likenesses;
}

}  // namespace prun::fp8_errors

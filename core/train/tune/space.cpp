#include "train/tune/space.hpp"

#include <algorithm>

namespace prun {
namespace {

// Calls body(factors) for each way to write `product` as that many factors.
template <class Body>
void each_factoring(std::int64_t product, std::size_t count, std::vector<std::int64_t>& factors,
                    Body&& body) {
  if (count == 0) {
    if (product == 1) body(factors);
    return;
  }
  for (std::int64_t factor = 1; factor <= product; ++factor) {
    if (product % factor != 0 || (count == 1 && factor != product)) continue;
    factors.push_back(factor);
    each_factoring(product / factor, count - 1, factors, body);
    factors.pop_back();
  }
}

}  // namespace

std::vector<Candidate> TuneSpace::starts() const {
  const CandidateMaker make(open_);
  std::vector<Candidate> starts;
  std::vector<std::int64_t> factors;
  each_factoring(open_.rest, open_.free.size(), factors, [&](const std::vector<std::int64_t>& extents) {
    for (const std::int64_t global : open_.globals) {
      const std::optional<Candidate> candidate = make.with_extents(extents, global);
      if (!candidate) continue;
      for (const std::int64_t micro : make.micros(*candidate)) {
        starts.push_back(*candidate);
        starts.back().micro = micro;
      }
    }
  });
  return starts;
}

std::vector<Candidate> TuneSpace::freed(const Candidate& candidate) const {
  const CandidateMaker make(open_);
  std::vector<Candidate> all;
  Candidate strongest = candidate, emptied = candidate;
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    if (!open_.parts[part].frees) continue;
    if (std::optional<Candidate> one = make.with_all_freed(emptied, part)) all.push_back(emptied = *one);
    std::optional<Candidate> last;
    for (const std::string& value : first_values(open_.parts[part]))
      if (std::optional<Candidate> one = make.with_part(candidate, part, value)) all.push_back(*(last = one));
    if (last) last = make.with_part(strongest, part, first_values(open_.parts[part]).back());
    if (!last) continue;
    strongest = *last;
    all.push_back(strongest);
  }
  return all;
}

std::vector<Candidate> TuneSpace::orders(const Candidate& candidate) const {
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < candidate.mesh.size(); ++i)
    if (candidate.mesh[i].extent > 1) free.push_back(i);
  std::vector<std::size_t> order = free;
  std::vector<Candidate> all;
  while (std::next_permutation(order.begin(), order.end())) {
    all.push_back(candidate);
    for (std::size_t i = 0; i < free.size(); ++i) all.back().mesh[free[i]] = candidate.mesh[order[i]];
  }
  return all;
}

}  // namespace prun

// Keeps stretches of bytes and the users of each.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "plan/order/call_uses.hpp"

namespace prun {

// Stretches are keyed by where they begin; `Users` states as `end` where its stretch ends. No two overlap.
template <class Users>
class Stretches : public std::map<std::int64_t, Users> {
 public:
  using Place = typename std::map<std::int64_t, Users>::iterator;

  // Returns the first stretch in the bytes used; afterwards none crosses their borders. Most stretches are
  // used whole.
  Place in(const ByteUse& use) {
    const Place whole = this->lower_bound(use.begin);
    if (whole != this->end() && whole->first == use.begin && whole->second.end == use.end) return whole;
    split(use.begin);
    split(use.end);
    return this->lower_bound(use.begin);
  }

 private:
  void split(std::int64_t at) {
    Place it = this->lower_bound(at);
    if (it == this->begin()) return;
    --it;
    if (it->second.end <= at) return;
    Users right = it->second;
    it->second.end = at;
    this->emplace(at, std::move(right));
  }
};

}  // namespace prun

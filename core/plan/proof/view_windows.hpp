// Finds what a value's bytes show: of a range that others lie in, and of a rank's part of it, what these
// hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/plan.hpp"
#include "plan/proof/content.hpp"

namespace prun {

// Describes bytes that hold one content.
struct Window {
  Content content;
  std::int64_t at = 0, bytes = 0;
};

class ViewWindows {
 public:
  ViewWindows(const Program& program, const Plan& plan) : program_(program), plan_(plan) {
    for (Id id = 0; id < program.value_count(); ++id)
      if (const std::optional<ViewOf>& view = program.value(id).view; view && !view->is_part())
        members_[view->whole].push_back(id);
  }

  // Calls `body` with each window into the bytes of `content`, which are at `at`.
  template <class Body>
  void each(const Content& content, const Address& address, std::int64_t at, Body&& body) const {
    const Value& value = program_.value(content.value);
    const bool range = value.role == Role::view && (!value.view || value.view->is_part());
    const auto members =
        range ? members_.find(value.view ? value.view->whole : content.value) : members_.end();
    if (members == members_.end()) {
      body(Window{content, at, address.bytes});
      return;
    }
    const std::int64_t part = plan_.part_of(address) * address.bytes;
    for (const Id member : members->second) {
      const std::int64_t first = program_.value(member).view->first * size_of(value.dtype) - part;
      const std::int64_t begin = std::max<std::int64_t>(first, 0),
                         end = std::min(first + program_.local_bytes(member), address.bytes);
      if (begin < end) body(Window{{member, content.instance, -1}, at + begin, end - begin});
    }
  }

 private:
  const Program& program_;
  const Plan& plan_;
  std::map<Id, std::vector<Id>> members_;  // what lies in each range
};

}  // namespace prun

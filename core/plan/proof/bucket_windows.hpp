// Finds what a value's bytes show: a view shows the members of its bucket.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/plan.hpp"
#include "plan/proof/content.hpp"

namespace prun {

// Describes bytes that hold one content.
struct Window {
  Content content;
  std::int64_t at = 0, bytes = 0;
};

class BucketWindows {
 public:
  BucketWindows(const Program& program, const Plan& plan) : program_(program), plan_(plan) {}

  // Calls `body` with each window into the bytes of `content`, which are at `at`. A view shows what its
  // members hold, and a view of gradients the padding between them too.
  template <class Body>
  void each(const Content& content, const Address& address, std::int64_t at, Body&& body) const {
    const Value& value = program_.value(content.value);
    if (value.role != Role::view || is_padding(content.value) || is_member(content.value)) {
      body(Window{content, at, address.bytes});
      return;
    }
    const Bucket& bucket = bucket_of(value);
    const bool gradients = content.value == bucket.all_gradients || content.value == bucket.own_gradients ||
                           content.value == bucket.own_sums;
    const std::int64_t unit = size_of(value.dtype);
    const std::int64_t part = plan_.part_of(address) * address.bytes;
    const auto show = [&](Id member, std::int64_t offset) {
      const std::int64_t first = offset * unit - part;
      const std::int64_t begin = std::max<std::int64_t>(first, 0),
                         end = std::min(first + program_.local_bytes(member), address.bytes);
      if (begin < end) body(Window{{member, content.instance, -1}, at + begin, end - begin});
    };
    for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
      const Id parameter = bucket.parameters[m];
      show(gradients                           ? program_.value(parameter).gradient
           : content.value == bucket.all_codes ? bucket.squares[m]
                                               : parameter,
           bucket.offsets[m]);
    }
    for (const Bucket::Padding& padding : bucket.padding)
      if (gradients) show(padding.view, padding.offset);
  }

 private:
  const Bucket& bucket_of(const Value& value) const { return program_.buckets()[value.bucket]; }

  // Says whether it is the codes of one member.
  bool is_member(Id id) const {
    const std::vector<Id>& codes = bucket_of(program_.value(id)).squares;
    return std::find(codes.begin(), codes.end(), id) != codes.end();
  }

  bool is_padding(Id id) const {
    const Bucket& bucket = bucket_of(program_.value(id));
    return std::any_of(bucket.padding.begin(), bucket.padding.end(),
                       [&](const Bucket::Padding& padding) { return padding.view == id; });
  }

  const Program& program_;
  const Plan& plan_;
};

}  // namespace prun

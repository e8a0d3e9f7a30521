#include "plan/proof/shadow_memory.hpp"

#include <algorithm>

#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

void add_read(const When& when, ShadowMemory::Stretch& stretch) {
  for (When& read : stretch.reads)
    if (read.queue == when.queue) {
      read = when;
      return;
    }
  stretch.reads.push_back(when);
}

}  // namespace

void ShadowMemory::put(std::int64_t at, std::int64_t size, const Content& content) {
  assign(at, size, content, {0, -1});
}

std::int64_t ShadowMemory::read(std::int64_t at, std::int64_t size, const Content& content,
                                const Versions& versions, std::string_view op) {
  std::int64_t oldest = versions.newest;
  const std::int64_t end = at + size;
  std::int64_t covered = at;
  for (auto it = stretches_in(at, end); it != stretches_.end() && it->first < end; ++it) {
    Stretch& stretch = it->second;
    if (it->first != covered || !stretch.content.same_but_version(content)) break;
    check_version(stretch.content, versions, op);
    oldest = std::min(oldest, stretch.content.version);
    if (!clocks_.is_done(stretch.written))
      fail_check("op '", op, "' reads ", describe_(content), " without waiting for the queue that writes it");
    add_read(clocks_.now(), stretch);
    covered = stretch.end;
  }
  if (covered != end) {
    const auto found = stretches_.find(covered);
    fail_check("op '", op, "' wants ", describe_(content), " but its bytes hold ",
               describe_(found == stretches_.end() ? Content{} : found->second.content));
  }
  return oldest;
}

void ShadowMemory::check_version(const Content& found, const Versions& wanted, std::string_view op) const {
  if (wanted.oldest <= found.version && found.version <= wanted.newest) return;
  const bool stale = found.version < wanted.oldest;
  const char* const counted = wanted.count == Counts::updates ? "update " : "step ";
  fail_check("op '", op, "' reads ", describe_(found), " as of ", counted, found.version,
             " where it wants that of ", counted, stale ? wanted.oldest : wanted.newest,
             stale ? ": it is stale" : ": it is ahead");
}

void ShadowMemory::check_begins(std::int64_t at, std::int64_t size, const Content& content,
                                std::string_view op) {
  const std::int64_t end = at + size;
  for (auto it = stretches_in(at, end); it != stretches_.end() && it->first < end; ++it) {
    const Content& found = it->second.content;
    if (found.same_but_version(content) && found.version == content.version)
      fail_check("op '", op, "' begins the sum ", describe_(found), ", which holds contributions already");
  }
}

void ShadowMemory::write(std::int64_t at, std::int64_t size, const Content& content, std::string_view op) {
  if (size == 0) return;
  for (auto it = stretches_in(at, at + size); it != stretches_.end() && it->first < at + size; ++it) {
    const Stretch& stretch = it->second;
    const bool safe = clocks_.is_done(stretch.written) &&
                      std::all_of(stretch.reads.begin(), stretch.reads.end(),
                                  [&](const When& reader) { return clocks_.is_done(reader); });
    if (!safe)
      fail_check("op '", op, "' overwrites ", describe_(stretch.content), " while another queue may use it");
  }
  if (!layout_.find(at, size))
    fail_check("op '", op, "' writes outside the arena: [", at, ", ", at + size, ")");
  assign(at, size, content, clocks_.now());
}

void ShadowMemory::forget_what_is_not_kept() {
  for (auto& [at, stretch] : stretches_)
    if (const Layout::Range* range = layout_.find(at, stretch.end - at);
        range && at >= range->begin + range->kept)
      stretch.content = {};
}

void ShadowMemory::assign(std::int64_t at, std::int64_t size, const Content& content, const When& when) {
  if (size == 0) return;
  const std::int64_t end = at + size;
  const auto first = stretches_in(at, end);
  if (first == stretches_.end() || first->first != at) {
    stretches_.erase(first, stretches_.lower_bound(end));
    stretches_[at] = {end, content, when, {}};
    return;
  }
  stretches_.erase(std::next(first), stretches_.lower_bound(end));
  Stretch& stretch = first->second;
  stretch.end = end;
  stretch.content = content;
  stretch.written = when;
  stretch.reads.clear();
}

// Returns the first of the stretches in [begin, end), after splitting stretches at both ends.
ShadowMemory::Stretches::iterator ShadowMemory::stretches_in(std::int64_t begin, std::int64_t end) {
  const auto whole = stretches_.lower_bound(begin);
  if (whole != stretches_.end() && whole->first == begin && whole->second.end == end) return whole;
  split(begin);
  split(end);
  return stretches_.lower_bound(begin);
}

// Splits the stretch at `at`.
void ShadowMemory::split(std::int64_t at) {
  auto it = stretches_.lower_bound(at);
  if (it == stretches_.begin()) return;
  --it;
  if (it->first >= at || it->second.end <= at) return;
  Stretch right = it->second;
  it->second.end = at;
  stretches_[at] = std::move(right);
}

}  // namespace prun

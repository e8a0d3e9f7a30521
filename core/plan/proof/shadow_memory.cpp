#include "plan/proof/shadow_memory.hpp"

#include <algorithm>

#include "plan/proof/check_failure.hpp"

namespace prun {

// ------------------------------------------------------------------- queue clocks

QueueClocks::QueueClocks(std::vector<std::int64_t> calls)
    : calls_(std::move(calls)), clocks_(calls_.size(), Clock(calls_.size(), -1)), history_(calls_.size()) {}

void QueueClocks::begin_step(std::int64_t step) {
  step_ = step;
  for (std::size_t q = 0; q < history_.size(); ++q)
    history_[q].resize(static_cast<std::size_t>((step + 1) * calls_[q]));
}

void QueueClocks::begin_call(std::int32_t queue, std::int32_t position, std::span<const Wait> waits) {
  now_ = {queue, first_ticket(queue) + position};
  Clock& clock = clocks_[queue];
  for (const Wait& wait : waits) join(clock, wait);
  clock[queue] = now_.ticket;
  clock_at(queue, now_.ticket) = clock;
}

void QueueClocks::join(Clock& clock, const Wait& wait) {
  const std::int64_t ticket = (step_ - wait.steps_ago) * calls_[wait.queue] + wait.call;
  if (ticket < 0) return;
  const Clock& other = clock_at(wait.queue, ticket);
  if (other.empty()) fail_check("a call waits for one that comes later in the order");
  for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
}

// Returns what was known to be done when a call began; empty before.
QueueClocks::Clock& QueueClocks::clock_at(std::int32_t queue, std::int64_t ticket) {
  Numbered<Clock>& of_queue = history_[queue];
  if (static_cast<std::size_t>(ticket) >= of_queue.size())
    fail_check("a call has a place that its queue, of ", calls_[queue], " calls a step, does not have");
  return of_queue[ticket];
}

// ------------------------------------------------------------------- content

std::string describe(const Program& program, const Content& content) {
  if (content.value == none) return "nothing";
  const std::string name =
      detail::concat("'", program.value(content.value).name, "' of instance ", content.instance);
  return content.microbatch < 0 ? name : detail::concat(name, ", microbatch ", content.microbatch);
}

namespace {

// ------------------------------------------------------------------- shadow memory

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

// ------------------------------------------------------------------- content versions

ContentVersions::ContentVersions(const Program& program)
    : program_(program), counts_(program.value_count(), Counts::nothing) {
  for (Id id = 0; id < program.value_count(); ++id) {
    const Role role = program.value(id).role;
    if (role == Role::activation || role == Role::input || role == Role::gradient)
      counts_[id] = Counts::steps;
  }
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (int kind = 0; kind < function_kinds; ++kind)
      for (Id op : program.segment(segment).ops(static_cast<FunctionKind>(kind)))
        find_what_changes(program.op(op));
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const FunctionKind kind : {FunctionKind::renew, FunctionKind::gather})
      for (Id op : program.segment(segment).ops(kind)) find_copies(program.op(op));
  for (const Bucket& bucket : program.buckets()) find_members(bucket);
}

void ContentVersions::find_what_changes(const Op& op) {
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id id = op.operands[i];
    if (id == none || op.access(i) == Access::read) continue;
    const Role role = program_.value(id).role;
    if (role == Role::runtime && op.access(i) == Access::write) counts_[id] = Counts::steps;
    if (is_optimizer(op.function) && (role == Role::parameter || role == Role::state || role == Role::view))
      counts_[id] = Counts::updates;
  }
}

// Results of `gather` are as old as the parameters they are made of.
void ContentVersions::find_copies(const Op& op) {
  const Id copy = op.operands.back();
  const Role role = program_.value(copy).role;
  Id from = op.operands.front();
  if (program_.value(from).role == Role::view) from = program_.bucket_of(program_.value(from)).own_parameters;
  if (role == Role::fetched || role == Role::activation) counts_[copy] = counts_[from];
}

void ContentVersions::find_members(const Bucket& bucket) {
  if (bucket.own_gradients != none) counts_[bucket.own_gradients] = Counts::steps;
  if (!counts_updates(bucket.own_parameters)) return;
  for (const Id member : bucket.parameters) counts_[member] = Counts::updates;
  for (const Id id : program_.segment(bucket.segment).values)
    if (is_codes_of_member(id) && program_.value(id).bucket == program_.value(bucket.own_parameters).bucket)
      counts_[id] = Counts::updates;
}

// Returns true for codes that are gathered instead of a parameter.
bool ContentVersions::is_codes_of_member(Id id) const {
  const Value& value = program_.value(id);
  return value.role == Role::view && value.view && !value.view->is_part() &&
         program_.value(value.view->whole).lifetime == ValueLifetime::just_in_time;
}

bool ContentVersions::carries_parameters(const Op& op) const {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (const Id id = op.operands[i]; id != none && op.access(i) == Access::write && holds_updated(id))
      return true;
  return false;
}

// Returns true if the value, or the value it is a view of, counts updates.
bool ContentVersions::holds_updated(Id id) const {
  const Value& value = program_.value(id);
  if (value.role != Role::view) return counts_updates(id);
  return (value.view ? value.view->whole : id) == program_.bucket_of(value).all_parameters;
}

Versions ContentVersions::wanted(Id id, std::int64_t step, bool updates, bool carries,
                                 std::int64_t delay) const {
  const Counts count = of(id);
  if (count == Counts::nothing) return {0, 0, count};
  if (count == Counts::steps) return {program_.value(id).carried ? step - 1 : step, step, count};
  if (carries) return {-program_.delay(), step + 1, count};
  return {step - delay, updates ? step + 1 : step - delay, count};
}

Content ContentVersions::written(Content content, std::int64_t step, std::int64_t updates) const {
  const Counts count = of(content.value);
  content.version = count == Counts::updates ? updates : count == Counts::steps ? step : 0;
  return content;
}

}  // namespace prun

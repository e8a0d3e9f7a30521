// The plan's proof: steps replayed over shadow memory until it repeats. Its bytes remember which value they
// hold, as of which step, who wrote it and who has read it since.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "plan/plan.hpp"

namespace prun {
namespace {

// Which content a value has: of which instance, for which microbatch, as of which step.
struct Content {
  Id value = none;
  std::int32_t instance = -1;
  std::int32_t microbatch = -1;
  // The step it was written in; of what updates change, how many of them it has seen.
  std::int64_t version = 0;

  bool same_but_version(const Content& other) const {
    return value == other.value && instance == other.instance && microbatch == other.microbatch;
  }
};

// What a value's version counts.
enum class Counts : std::uint8_t {
  steps,    // it is made anew in each
  updates,  // parameters, masters, moments, and their copies
  nothing,  // it stays as it is, or nobody says when it changes
};

// When something happened: the position of a call in its queue, over all steps.
struct When {
  std::int32_t queue = -1;
  std::int64_t ticket = 0;
};

struct Bytes {
  std::int64_t end = 0;
  Content content;
  When written;
  std::vector<When> reads;  // the latest of each queue since it was written: the earlier ones are before it

  void add_read(const When& when) {
    for (When& read : reads)
      if (read.queue == when.queue) {
        read = when;
        return;
      }
    reads.push_back(when);
  }
};

class Replay {
 public:
  Replay(const Program& program, const Plan& plan)
      : program_(program),
        plan_(plan),
        clocks_(plan.queues.size(), std::vector<std::int64_t>(plan.queues.size(), -1)),
        history_(plan.queues.size()) {
    find_what_versions_count();
  }

  // What a step leaves as the one before did, the next will as well: what is known to be done only grows from
  // step to step, since the waits are the same. Staging has two sides, which nobody but the host reads: each
  // is written once at least.
  void run() {
    constexpr std::int64_t most_steps = 8;
    write_initial();
    State before;
    for (step_ = 0;; ++step_) {
      if (step_ == most_steps) fail("the state of memory does not repeat within ", most_steps, " steps");
      for (std::size_t q = 0; q < history_.size(); ++q)
        history_[q].resize(static_cast<std::size_t>((step_ + 1) * plan_.queues[q].calls));
      for (const Call& call : plan_.calls) replay(call);
      State now = state();
      if (step_ > 0 && now == before) break;
      before = std::move(now);
      forget_what_does_not_stay();
    }
    check_effects();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
  }

  std::string describe(const Content& content) const {
    if (content.value == none) return "nothing";
    const std::string name =
        detail::concat("'", program_.value(content.value).name, "' of instance ", content.instance);
    return content.microbatch < 0 ? name : detail::concat(name, ", microbatch ", content.microbatch);
  }

  // ------------------------------------------------------------- versions

  void find_what_versions_count() {
    counts_.resize(program_.value_count(), Counts::nothing);
    for (Id id = 0; id < program_.value_count(); ++id) {
      const Role role = program_.value(id).role;
      if (role == Role::activation || role == Role::input || role == Role::gradient)
        counts_[id] = Counts::steps;
    }
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind)
        for (Id op : program_.segment(segment).ops(static_cast<FunctionKind>(kind)))
          find_what_changes(program_.op(op));
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (Id op : program_.segment(segment).ops(FunctionKind::gather))
        if (const std::vector<Id>& copied = program_.op(op).operands; program_.op(op).def->copies)
          if (const Role role = program_.value(copied.back()).role;
              role == Role::fetched || role == Role::activation)
            counts_[copied.back()] = counts_[copied.front()];
    for (const Bucket& bucket : program_.buckets()) {
      if (bucket.own_gradients != none) counts_[bucket.own_gradients] = Counts::steps;
      if (counts_[bucket.own_parameters] != Counts::updates) continue;
      for (Id parameter : bucket.parameters) counts_[parameter] = Counts::updates;
    }
  }

  void find_what_changes(const Op& op) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const Id id = op.operands[i];
      if (id == none || op.access(i) == Access::read) continue;
      const Role role = program_.value(id).role;
      if (role == Role::runtime && op.access(i) == Access::write) counts_[id] = Counts::steps;
      if (op.function == FunctionKind::update &&
          (role == Role::parameter || role == Role::state || role == Role::view))
        counts_[id] = Counts::updates;
    }
  }

  bool counts_updates(Id id) const { return counts_[id] == Counts::updates; }

  // What a step makes is its own, but for what the next one takes over. The update leaves a new version, and
  // finds the old one or, behind other ops of itself, the new one. Who carries parameters elsewhere may carry
  // any version, and the copy has it: it is whoever computes with the copy that needs the right one.
  struct Versions {
    std::int64_t oldest = 0, newest = 0;
  };
  Versions wanted(Id id, bool updates, bool carries) const {
    if (counts_[id] == Counts::nothing) return {0, 0};
    if (!counts_updates(id)) return {program_.value(id).carried ? step_ - 1 : step_, step_};
    return {carries ? 0 : step_, carries || updates ? step_ + 1 : step_};
  }

  // ------------------------------------------------------------- steps

  // Parameters and optimizer state exist before step one, and memory that nobody has written is zero, as
  // padding must be; both sides of the staging area are the host's.
  void write_initial() {
    const When before{0, -1};
    for (const Bucket& bucket : program_.buckets())
      for (const Bucket::Padding& padding : bucket.padding)
        for (std::size_t i = 0; i < plan_.instances.size() && !bucket.kept.gradients; ++i)
          if (plan_.instances[i].segment == bucket.segment && !plan_.instances[i].receive_stub) {
            const Address& home = plan_.home(padding.view);
            const auto instance = static_cast<std::int32_t>(i);
            assign(plan_.resolve(instance, home), home.bytes, {padding.view, instance, -1}, before);
          }
    for (std::size_t i = 0; i < plan_.instances.size(); ++i)
      for (Id id : program_.segment(plan_.instances[i].segment).values) {
        if (plan_.instances[i].receive_stub) continue;
        const auto home = plan_.homes.find(id);
        if (home == plan_.homes.end() || program_.value(id).role == Role::view) continue;
        if (counts_[id] == Counts::steps) continue;
        const Region region = home->second.region;
        if (region != Region::parameter && region != Region::state) continue;
        const auto instance = static_cast<std::int32_t>(i);
        assign(plan_.resolve(instance, home->second), home->second.bytes, {id, instance, -1}, before);
      }
    // What a step takes over from the one before; the first one's is as good as any.
    for (Id id : program_.segment(program_.step_segment()).values)
      if (program_.value(id).carried)
        assign(plan_.resolve(Call{}, plan_.home(id), 0), plan_.home(id).bytes, {id, 0, -1, -1}, before);
  }

  // There, other programs may have written meanwhile.
  void forget_what_does_not_stay() {
    for (auto& [at, bytes] : memory_)
      if (const Layout::Range* range = plan_.layout.find(at, bytes.end - at);
          range && at >= range->begin + range->kept)
        bytes.content = {};
  }

  void replay(const Call& call) {
    current_ = {call.queue, step_ * plan_.queues[static_cast<std::size_t>(call.queue)].calls + call.position};
    std::vector<std::int64_t>& clock = clocks_[static_cast<std::size_t>(call.queue)];
    for (const Wait& wait : call.waits) join(clock, wait);
    clock[static_cast<std::size_t>(call.queue)] = current_.ticket;
    clock_at(call.queue, current_.ticket) = clock;
    if (kind_of(call) == FunctionKind::norm && !unsummed_.empty())
      fail(describe({unsummed_.begin()->first, unsummed_.begin()->second, -1}),
           " is not summed over the ranks when its norm is taken");
    const std::span<const PlannedStep> steps = plan_.steps(call);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const PlannedStep& step = steps[s];
      if (step.op == none)
        replay_transfer(call, step);
      else if (step.exchange)
        replay_exchange(call, step);
      else
        replay_step(call, step, call.first_of(s));
      for (const Address& dead : step.dead_after)
        write(plan_.resolve(call, dead, 0), dead.bytes, {none, -3, -3}, "release");
    }
    called_.insert({call.function, call.piece});
    for (const InstancePiece& of : plan_.functions[static_cast<std::size_t>(call.function)].joins)
      called_.insert({of.function, of.piece});
  }

  // From another rank, or to it. That both mean the same is for plan/ranks.
  void replay_transfer(const Call& call, const PlannedStep& step) {
    const PlannedOperand& operand = step.operands.front();
    const std::int64_t at = plan_.resolve(call, operand.address, 0);
    const Content content = with_version(content_of(call, operand.value, operand.address), step_);
    if (step.exchange->kind == CommKind::send)
      read(at, operand.address.bytes, content, {step_, step_}, "send");
    else
      write(at, operand.address.bytes, content, "recv");
  }

  // Reads its first operand and writes its last, which are one where it works in place; and so on for what
  // travels with it.
  void replay_exchange(const Call& call, const PlannedStep& step) {
    const Op& op = program_.op(step.op);
    const std::size_t own = op.operands.size();
    const bool carries = carries_parameters(op);
    // Of what it carries; where a rank's part is padding alone, nothing there says so.
    std::int64_t version = kind_of(call) == FunctionKind::update ? step_ + 1 : step_;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const PlannedOperand& operand = step.operands[i];
      const Access access = i < own ? op.access(i) : Access::update;
      const std::int64_t at = plan_.resolve(call, operand.address, static_cast<int>(step_ % 2));
      const Content content = content_of(call, operand.value, operand.address);
      each_window(content, operand.address, at, [&](const Window& window) {
        const bool counts = counts_updates(window.content.value);
        if (access != Access::write) {
          const std::int64_t found = read(window.at, window.bytes, window.content,
                                          wanted(window.content.value, false, carries), op.kind());
          if (counts) version = std::min(version, found);
        }
        if (access != Access::read)
          write(window.at, window.bytes, with_version(window.content, version), op.kind());
        // Tied copies are summed before the ranks that hold summands of each.
        if (program_.value(window.content.value).role != Role::gradient) return;
        if (kind_of(call) != FunctionKind::tie) summed_.insert({window.content.value, content.instance});
        follow_parts(call, access, window.content);
      });
    }
  }

  // Whether an op makes a copy of a parameter, or of a part of it.
  bool carries_parameters(const Op& op) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (const Id id = op.operands[i]; id != none && op.access(i) == Access::write && holds_updated(id))
        return true;
    return false;
  }

  // Itself, or what it is a view of.
  bool holds_updated(Id id) const {
    const Value& value = program_.value(id);
    if (value.role != Role::view) return counts_updates(id);
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    return id == bucket.all_parameters || id == bucket.own_parameters || id == bucket.own_fetched;
  }

  Content with_version(Content content, std::int64_t of_updates) const {
    const Counts counts = counts_[content.value];
    content.version = counts == Counts::updates ? of_updates : counts == Counts::steps ? step_ : 0;
    return content;
  }

  // A gradient that is a partial sum of each rank is summed once, after its last contribution.
  void check_summed(const Call& call, const Op& op, std::size_t i, bool first, const Content& content) {
    const Value& value = program_.value(content.value);
    if (value.role != Role::gradient) return;
    if (op.def->clears || first) {
      if (unsummed_.count({content.value, content.instance}) != 0)
        fail("op '", op.kind(), "' ", first ? "begins " : "clears ", describe(content),
             " again before it is summed over the ranks");
      summed_.erase({content.value, content.instance});
    }
    if (op.def->clears) return;
    follow_parts(call, op.access(i), content);
    const bool summed = summed_.count({content.value, content.instance}) != 0;
    const FunctionKind kind = kind_of(call);
    if (kind == FunctionKind::reduce && op.access(i) == Access::write) {  // the sum, back in its own type
      summed_.insert({content.value, content.instance});
      return;
    }
    const bool partial = std::any_of(value.placement.begin(), value.placement.end(),
                                     [](const AxisPlacement& p) { return p.is_partial(); });
    if (op.access(i) == Access::update && summed)
      fail("op '", op.kind(), "' adds to ", describe(content), " after it was summed over the ranks");
    const bool leaves = kind == FunctionKind::reduce && !op.def->converts;
    if (partial && !summed && (leaves || kind == FunctionKind::norm || kind == FunctionKind::update))
      fail("op '", op.kind(), "' reads ", describe(content), " before it is summed over the ranks");
  }

  // Gradients kept in parts: all that was added to the whole is handed to the sum before it is cleared, and
  // before the step needs it.
  void follow_parts(const Call& call, Access access, const Content& content) {
    const std::int32_t bucket = program_.value(content.value).bucket;
    if (bucket < 0 || !program_.buckets()[static_cast<std::size_t>(bucket)].kept.gradients) return;
    const FunctionKind kind = kind_of(call);
    if (kind == FunctionKind::reduce && access == Access::read)
      unsummed_.erase({content.value, content.instance});
    else if (kind != FunctionKind::reduce && kind != FunctionKind::tie && access == Access::update)
      unsummed_.insert({content.value, content.instance});
  }

  FunctionKind kind_of(const Call& call) const {
    return plan_.functions[static_cast<std::size_t>(call.function)].kind;
  }

  void join(std::vector<std::int64_t>& clock, const Wait& wait) {
    const std::int64_t ticket =
        (step_ - wait.steps_ago) * plan_.queues[static_cast<std::size_t>(wait.queue)].calls + wait.call;
    if (ticket < 0) return;
    const std::vector<std::int64_t>& other = clock_at(wait.queue, ticket);
    if (other.empty()) fail("a call waits for one that comes later in the order");
    for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
  }

  // What was known to be done when a call began; empty before that.
  std::vector<std::int64_t>& clock_at(std::int32_t queue, std::int64_t ticket) {
    std::vector<std::vector<std::int64_t>>& of_queue = history_[static_cast<std::size_t>(queue)];
    if (static_cast<std::size_t>(ticket) >= of_queue.size())
      fail("a call has a place that its queue, of ", plan_.queues[static_cast<std::size_t>(queue)].calls,
           " calls a step, does not have");
    return of_queue[static_cast<std::size_t>(ticket)];
  }

  // Bit i of `first`: the step begins the sum in operand i.
  void replay_step(const Call& call, const PlannedStep& step, std::uint32_t first) {
    const Op& op = program_.op(step.op);
    check_can_begin(op, step, first);
    const bool updates = kind_of(call) == FunctionKind::update, carries = carries_parameters(op);
    std::int64_t version = step_ + 1;  // of parameters that are copies of others
    const auto each_operand = [&](auto&& body) {
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        if (op.operands[i] == none) continue;
        const Address& address = step.operands[i].address;
        const std::int64_t at = plan_.resolve(call, address, static_cast<int>(step_ % 2));
        each_window(content_of(call, op.operands[i], address), address, at,
                    [&](const Window& window) { body(i, window); });
      }
    };
    each_operand([&](std::size_t i, const Window& window) {
      const bool begins = (first >> i & 1) != 0;
      check_summed(call, op, i, begins, window.content);
      if (begins) check_dead(window, op.kind());
      if (begins || op.access(i) == Access::write) return;
      const std::int64_t found =
          read(window.at, window.bytes, window.content,
               wanted(window.content.value, updates, carries && op.access(i) == Access::read), op.kind());
      if (op.access(i) == Access::read && counts_updates(window.content.value))
        version = std::min(version, found);
    });
    each_operand([&](std::size_t i, const Window& window) {
      if (op.access(i) == Access::read) return;
      const bool changes = updates && op.access(i) == Access::update;
      write(window.at, window.bytes, with_version(window.content, changes ? step_ + 1 : version), op.kind());
    });
    if (step.workspace.bytes > 0)
      write(plan_.resolve(call, step.workspace, 0), step.workspace.bytes, {none, -2, -2}, "workspace");
  }

  void check_can_begin(const Op& op, const PlannedStep& step, std::uint32_t first) const {
    for (std::size_t i = 0; first != 0 && i < op.operands.size(); ++i)
      if ((first >> i & 1) != 0 && ((step.writes_first >> i & 1) == 0 || op.access(i) != Access::update))
        fail("op '", op.kind(), "' is to begin the sum in its operand '", op.def->operands[i].name,
             "', which its kernel cannot");
  }

  struct Window {
    Content content;
    std::int64_t at = 0, bytes = 0;
  };

  // A view shows what its members hold, and that of gradients the padding between them.
  template <class Body>
  void each_window(const Content& content, const Address& address, std::int64_t at, Body&& body) const {
    const Value& value = program_.value(content.value);
    const bool flat = value.role == Role::view && !is_padding(content.value);
    if (!flat) {
      body(Window{content, at, address.bytes});
      return;
    }
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    const bool gradients = content.value == bucket.all_gradients || content.value == bucket.own_gradients ||
                           content.value == bucket.own_sums;
    const std::int64_t part =
        address.part_axis == no_axis ? 0 : plan_.coordinates[address.part_axis] * address.bytes;
    for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
      const Id parameter = bucket.parameters[m],
               member = gradients ? program_.value(parameter).gradient : parameter;
      const std::int64_t first = bucket.offsets[m] * size_of(value.dtype) - part;
      const std::int64_t begin = std::max<std::int64_t>(first, 0),
                         end = std::min(first + program_.local_bytes(member), address.bytes);
      if (begin < end) body(Window{{member, content.instance, -1}, at + begin, end - begin});
    }
    for (const Bucket::Padding& padding : bucket.padding) {
      const std::int64_t first = padding.offset * size_of(value.dtype) - part;
      const std::int64_t begin = std::max<std::int64_t>(first, 0),
                         end = std::min(first + program_.local_bytes(padding.view), address.bytes);
      if (gradients && begin < end)
        body(Window{{padding.view, content.instance, -1}, at + begin, end - begin});
    }
  }

  bool is_padding(Id id) const {
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(program_.value(id).bucket)];
    return std::any_of(bucket.padding.begin(), bucket.padding.end(),
                       [&](const Bucket::Padding& padding) { return padding.view == id; });
  }

  Content content_of(const Call& call, Id id, const Address& address) const {
    const Value& value = program_.value(id);
    std::int32_t instance = call.instance;
    if (address.whose == Whose::fixed) instance = address.instance;
    if (address.whose == Whose::previous) {
      instance = call.instance - 1;
      const SegmentData& before =
          program_.segment(plan_.instances[static_cast<std::size_t>(instance)].segment);
      id = address.region == Region::boundary ? before.outgoing : before.outgoing_gradient;
    }
    const bool of_microbatch = value.role == Role::activation || value.role == Role::input;
    return {id, instance, of_microbatch ? call.microbatch : -1};
  }

  bool before(const When& earlier) const {
    return earlier.ticket < 0 ||
           clocks_[static_cast<std::size_t>(current_.queue)][static_cast<std::size_t>(earlier.queue)] >=
               earlier.ticket;
  }

  // Returns the oldest version found.
  std::int64_t read(std::int64_t at, std::int64_t size, const Content& content, Versions versions,
                    std::string_view op) {
    std::int64_t oldest = versions.newest;
    if (program_.value(content.value).role == Role::staging) return oldest;  // the host's side
    const std::int64_t end = at + size;
    std::int64_t covered = at;
    for (auto it = stretches(at, end); it != memory_.end() && it->first < end; ++it) {
      if (it->first != covered || !it->second.content.same_but_version(content)) break;
      check_version(it->second.content, versions, op);
      oldest = std::min(oldest, it->second.content.version);
      if (!before(it->second.written))
        fail("op '", op, "' reads ", describe(content), " without waiting for the queue that writes it");
      it->second.add_read(current_);
      covered = it->second.end;
    }
    if (covered != end) {
      const auto found = memory_.find(covered);
      fail("op '", op, "' wants ", describe(content), " but its bytes hold ",
           describe(found == memory_.end() ? Content{} : found->second.content));
    }
    return oldest;
  }

  void check_version(const Content& found, Versions wanted, std::string_view op) const {
    if (wanted.oldest <= found.version && found.version <= wanted.newest) return;
    const char* const counted = counts_updates(found.value) ? "update " : "step ";
    fail("op '", op, "' reads ", describe(found), " as of ", counted, found.version,
         " where it wants that of ", counted, found.version < wanted.oldest ? wanted.oldest : wanted.newest,
         found.version < wanted.oldest ? ": it is stale" : ": it is ahead");
  }

  // Whoever begins a sum must find none there.
  void check_dead(const Window& window, std::string_view op) {
    const std::int64_t end = window.at + window.bytes;
    for (auto it = stretches(window.at, end); it != memory_.end() && it->first < end; ++it) {
      const Content& found = it->second.content;
      if (found.same_but_version(window.content) && found.version == step_)
        fail("op '", op, "' begins the sum ", describe(found), ", which holds contributions already");
    }
  }

  void write(std::int64_t at, std::int64_t size, const Content& content, std::string_view op) {
    if (size == 0) return;
    for (auto it = stretches(at, at + size); it != memory_.end() && it->first < at + size; ++it) {
      bool safe = before(it->second.written);
      for (const When& reader : it->second.reads) safe = safe && before(reader);
      if (!safe)
        fail("op '", op, "' overwrites ", describe(it->second.content), " while another queue may use it");
    }
    if (!plan_.layout.find(at, size))
      fail("op '", op, "' writes outside the arena: [", at, ", ", at + size, ")");
    assign(at, size, content, current_);
  }

  void assign(std::int64_t at, std::int64_t size, const Content& content, const When& when) {
    if (size == 0) return;
    const std::int64_t end = at + size;
    const auto first = stretches(at, end);
    if (first == memory_.end() || first->first != at) {
      memory_.erase(first, memory_.lower_bound(end));
      memory_[at] = {end, content, when, {}};
      return;
    }
    memory_.erase(std::next(first), memory_.lower_bound(end));
    Bytes& bytes = first->second;
    bytes.end = end;
    bytes.content = content;
    bytes.written = when;
    bytes.reads.clear();
  }

  // The first of the stretches in [begin, end), which none crosses afterwards. Most are used whole.
  std::map<std::int64_t, Bytes>::iterator stretches(std::int64_t begin, std::int64_t end) {
    const auto whole = memory_.lower_bound(begin);
    if (whole != memory_.end() && whole->first == begin && whole->second.end == end) return whole;
    split(begin);
    split(end);
    return memory_.lower_bound(begin);
  }

  // Makes `at` a border between two stretches of bytes.
  void split(std::int64_t at) {
    auto it = memory_.lower_bound(at);
    if (it == memory_.begin()) return;
    --it;
    if (it->first >= at || it->second.end <= at) return;
    Bytes right = it->second;
    it->second.end = at;
    memory_[at] = std::move(right);
  }

  void check_effects() const {
    for (std::size_t f = 0; f < plan_.functions.size(); ++f) {
      const PlannedFunction& function = plan_.functions[f];
      for (std::size_t piece = 0; piece < function.pieces.size(); ++piece)
        if (!called_.count({static_cast<std::int32_t>(f), static_cast<std::int32_t>(piece)}))
          fail("function ", name_of(function.kind), " of segment '", program_.segment(function.segment).name,
               "' is never called");
      std::int32_t covered = 0;
      for (const Piece& piece : function.pieces)
        if (piece.first == covered) covered = piece.last;
      if (covered != static_cast<std::int32_t>(function.steps.size()))
        fail("function ", name_of(function.kind), " has steps that no call runs");
      std::set<Id> kept;
      for (const PlannedStep& step : function.steps) {
        if (step.op != none) kept.insert(step.op);
        kept.insert(step.also.begin(), step.also.end());
      }
      if (!function.joins.empty()) check_joined(function);
      for (Id op : program_.segment(function.segment).ops(function.kind))
        if (function.joins.empty() && kept.count(op) == 0 && !may_be_left_out(program_.op(op)))
          fail("function ", name_of(function.kind), " has lost ops");
    }
  }

  // It has the ops of all that it joins.
  void check_joined(const PlannedFunction& joint) const {
    std::size_t at = 0;
    for (const InstancePiece& of : joint.joins) {
      const PlannedFunction& function = plan_.functions[static_cast<std::size_t>(of.function)];
      const Piece& piece = function.pieces[static_cast<std::size_t>(of.piece)];
      for (std::int32_t s = piece.first; s < piece.last; ++s, ++at)
        if (at == joint.steps.size() || joint.steps[at].op != function.steps[static_cast<std::size_t>(s)].op)
          fail("function ", name_of(joint.kind), " has lost ops of those that it joins");
    }
  }

  // Sums that are begun by a write need not be cleared; where one is not, reads of it fail.
  static bool may_be_left_out(const Op& op) {
    return op.def->clears && (op.function == FunctionKind::zero || op.function == FunctionKind::clear);
  }

  // ------------------------------------------------------------- what repeats

  // All that the next step's replay depends on, relative to the step; but for staging, whose sides take
  // turns.
  using State = std::vector<std::int64_t>;
  State state() const {
    State state;
    for (const auto& [at, bytes] : memory_) {
      const Content& content = bytes.content;
      if (content.value != none && program_.value(content.value).role == Role::staging) continue;
      const bool counts = content.value != none && counts_[content.value] != Counts::nothing;
      state.insert(state.end(), {at, bytes.end, content.value, content.instance, content.microbatch,
                                 counts ? content.version - step_ : 0});
      add_when(bytes.written, state);
      std::vector<When> reads = bytes.reads;
      std::sort(reads.begin(), reads.end(), [](const When& a, const When& b) { return a.queue < b.queue; });
      state.push_back(static_cast<std::int64_t>(reads.size()));
      for (const When& read : reads) add_when(read, state);
    }
    for (const auto* sums : {&summed_, &unsummed_})
      for (const auto& [value, instance] : *sums) state.insert(state.end(), {value, instance});
    return state;
  }

  void add_when(const When& when, State& state) const {
    const std::int64_t first = step_ * plan_.queues[static_cast<std::size_t>(when.queue)].calls;
    state.insert(state.end(), {when.queue, when.ticket < 0 ? std::numeric_limits<std::int64_t>::min()
                                                           : when.ticket - first});
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<Counts> counts_;  // by value
  std::int64_t step_ = 0;
  When current_;
  std::map<std::int64_t, Bytes> memory_;
  std::vector<std::vector<std::int64_t>> clocks_;
  std::vector<std::vector<std::vector<std::int64_t>>> history_;  // by queue and ticket
  std::set<std::pair<std::int32_t, std::int32_t>> called_;       // function, piece
  std::set<std::pair<Id, std::int32_t>> summed_;                 // gradient, instance
  std::set<std::pair<Id, std::int32_t>> unsummed_;               // of those kept in parts
};

}  // namespace

void check_plan(const Program& program, const Plan& plan) { Replay(program, plan).run(); }

namespace {

// A program beside another one that has memory of its own.
class Guest {
 public:
  Guest(const Program& program, const Plan& plan, const Beneath& beneath)
      : program_(program), plan_(plan), beneath_(beneath) {}

  void run() {
    for (const Call& call : plan_.calls)
      for (const PlannedStep& step : plan_.steps(call)) {
        if (step.exchange) check_write(call, step, step.exchange->out);
        for (std::size_t i = 0; !step.exchange && i < step.operands.size(); ++i)
          if (step.operands[i].value != none && program_.op(step.op).access(i) != Access::read)
            check_write(call, step, step.operands[i].address);
        check_write(call, step, step.workspace);
        for (const Address& dead : step.dead_after) check_write(call, step, dead);
        for (const PlannedOperand& operand : step.operands)
          if (operand.value != none && lasts(operand.address.region)) check_same(call, operand);
      }
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
  }

  void check_write(const Call& call, const PlannedStep& step, const Address& address) const {
    if (address.bytes == 0) return;
    const std::string_view op = step.op == none ? "recv" : program_.op(step.op).kind();
    for (const int side : {0, 1}) {
      const std::int64_t at = plan_.resolve(call, address, side);
      for (const Layout::Range& range : beneath_.plan.layout.ranges)
        if (at < range.begin + range.kept && range.begin < at + address.bytes)
          fail("op '", op, "' writes ", name_of(address.region), " where the program beneath keeps its own");
    }
  }

  void check_same(const Call& call, const PlannedOperand& operand) const {
    const Value& value = program_.value(operand.value);
    for (Id other : beneath_.program.segment(value.segment).values) {
      const auto home = beneath_.plan.homes.find(other);
      if (home == beneath_.plan.homes.end() || beneath_.program.value(other).name != value.name) continue;
      Address there = home->second;
      there.whose = operand.address.whose;
      there.instance = operand.address.instance;
      if (there.bytes == operand.address.bytes &&
          beneath_.plan.resolve(call, there, 0) == plan_.resolve(call, operand.address, 0))
        return;
    }
    fail("'", value.name, "' does not lie where the program beneath has it");
  }

  const Program& program_;
  const Plan& plan_;
  const Beneath& beneath_;
};

}  // namespace

void check_over(const Program& program, const Plan& plan, const Beneath& beneath) {
  Guest(program, plan, beneath).run();
}

}  // namespace prun

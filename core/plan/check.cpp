// The plan's proof: two steps replayed over shadow memory, whose bytes remember which value they hold, who
// wrote it and who has read it since.
#include <algorithm>
#include <map>
#include <set>

#include "plan/plan.hpp"

namespace prun {
namespace {

// Which content a value has: of which instance, for which microbatch, in which step.
struct Content {
  Id value = none;
  std::int32_t instance = -1;
  std::int32_t microbatch = -1;
  friend bool operator==(const Content&, const Content&) = default;
};

// When something happened: the position of a call in its queue, over both steps.
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
        clocks_(plan.queues.size(), std::vector<std::int64_t>(plan.queues.size(), -1)) {
    for (const QueueInfo& queue : plan.queues)
      history_.emplace_back(static_cast<std::size_t>(2 * queue.calls));
  }

  void run() {
    write_initial();
    for (step_ = 0; step_ < 2; ++step_)
      for (const Call& call : plan_.calls) replay(call);
    check_effects();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::internal, "plan check: ", detail::concat(parts...));
  }

  std::string describe(const Content& content) const {
    if (content.value == none) return "nothing";
    return detail::concat("'", program_.value(content.value).name, "' of instance ", content.instance,
                          ", microbatch ", content.microbatch);
  }

  // Parameters and optimizer state exist before step one; both sides of the staging area are the host's.
  void write_initial() {
    const When before{0, -1};
    for (std::size_t i = 0; i < plan_.instances.size(); ++i)
      for (Id id : program_.segment(plan_.instances[i].segment).values) {
        if (plan_.instances[i].receive_stub) continue;
        const auto home = plan_.homes.find(id);
        if (home == plan_.homes.end() || program_.value(id).role == Role::view) continue;
        const Region region = home->second.region;
        if (region != Region::parameter && region != Region::state) continue;
        const auto instance = static_cast<std::int32_t>(i);
        assign(plan_.resolve(instance, home->second), home->second.bytes, {id, instance, -1}, before);
      }
    // What a step takes over from the one before; the first one's is as good as any.
    for (Id id : program_.segment(program_.step_segment()).values)
      if (program_.value(id).carried)
        assign(plan_.resolve(Call{}, plan_.home(id), 0), plan_.home(id).bytes, {id, 0, -1}, before);
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
    for (const PlannedStep& step : plan_.steps(call)) {
      if (step.op == none)
        replay_transfer(call, step);
      else if (step.exchange)
        replay_exchange(call, step);
      else
        replay_step(call, step);
      for (const Address& dead : step.dead_after)
        write(plan_.resolve(call, dead, 0), dead.bytes, {none, -3, -3}, "release");
    }
    called_.insert({call.function, call.piece});
  }

  // From another rank, or to it. That both mean the same is for plan/ranks.
  void replay_transfer(const Call& call, const PlannedStep& step) {
    const PlannedOperand& operand = step.operands.front();
    const std::int64_t at = plan_.resolve(call, operand.address, 0);
    const Content content = content_of(call, operand.value, operand.address);
    if (step.exchange->kind == CommKind::send)
      read(at, operand.address.bytes, content, "send");
    else
      write(at, operand.address.bytes, content, "recv");
  }

  // Reads its first operand and writes its last, which are one where it works in place; and so on for what
  // travels with it.
  void replay_exchange(const Call& call, const PlannedStep& step) {
    const Op& op = program_.op(step.op);
    const std::size_t own = op.operands.size();
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const PlannedOperand& operand = step.operands[i];
      const Access access = i < own ? op.access(i) : Access::update;
      const std::int64_t at = plan_.resolve(call, operand.address, static_cast<int>(step_ % 2));
      const Content content = content_of(call, operand.value, operand.address);
      each_window(content, operand.address, at, [&](const Window& window) {
        if (access != Access::write) read(window.at, window.bytes, window.content, op.kind());
        if (access != Access::read) write(window.at, window.bytes, window.content, op.kind());
        // Tied copies are summed before the ranks that hold summands of each.
        if (program_.value(window.content.value).role != Role::gradient) return;
        if (kind_of(call) != FunctionKind::tie) summed_.insert({window.content.value, content.instance});
        follow_parts(call, access, window.content);
      });
    }
  }

  // A gradient that is a partial sum of each rank is summed once, after its last contribution.
  void check_summed(const Call& call, const Op& op, std::size_t i, const Content& content) {
    const Value& value = program_.value(content.value);
    if (value.role != Role::gradient) return;
    if (op.def->clears) {
      if (unsummed_.count({content.value, content.instance}) != 0)
        fail("op '", op.kind(), "' clears ", describe(content), " before it is summed over the ranks");
      summed_.erase({content.value, content.instance});
      return;
    }
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
    if (partial && !summed && (kind == FunctionKind::norm || kind == FunctionKind::update))
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
      fail("a call has a place that its queue, of ", of_queue.size() / 2, " calls a step, does not have");
    return of_queue[static_cast<std::size_t>(ticket)];
  }

  void replay_step(const Call& call, const PlannedStep& step) {
    const Op& op = program_.op(step.op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const Address& address = step.operands[i].address;
      const std::int64_t at = plan_.resolve(call, address, static_cast<int>(step_ % 2));
      each_window(content_of(call, op.operands[i], address), address, at, [&](const Window& window) {
        check_summed(call, op, i, window.content);
        if (op.access(i) != Access::write) read(window.at, window.bytes, window.content, op.kind());
        if (op.access(i) != Access::read) write(window.at, window.bytes, window.content, op.kind());
      });
    }
    if (step.workspace.bytes > 0)
      write(plan_.resolve(call, step.workspace, 0), step.workspace.bytes, {none, -2, -2}, "workspace");
  }

  struct Window {
    Content content;
    std::int64_t at = 0, bytes = 0;
  };

  // A view shows what its members hold; between them there is nothing.
  template <class Body>
  void each_window(const Content& content, const Address& address, std::int64_t at, Body&& body) const {
    const Value& value = program_.value(content.value);
    if (value.role != Role::view) {
      body(Window{content, at, address.bytes});
      return;
    }
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    const bool gradients = content.value == bucket.all_gradients || content.value == bucket.own_gradients;
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

  void read(std::int64_t at, std::int64_t size, const Content& content, std::string_view op) {
    if (program_.value(content.value).role == Role::staging) return;  // the host's side
    const std::int64_t end = at + size;
    std::int64_t covered = at;
    for (auto it = stretches(at, end); it != memory_.end() && it->first < end; ++it) {
      if (it->first != covered || !(it->second.content == content)) break;
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
      std::size_t ops = 0;
      for (const PlannedStep& step : function.steps) ops += (step.op != none) + step.also.size();
      if (ops != program_.segment(function.segment).ops(function.kind).size())
        fail("function ", name_of(function.kind), " has lost ops");
    }
  }

  const Program& program_;
  const Plan& plan_;
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

}  // namespace prun

// Turns ready steps into messages, copies and sums, and messages that arrive into ready steps.
#include "communicator.hpp"

#include <algorithm>
#include <cstring>

#include "arithmetic.hpp"

namespace prun::ucx {
namespace {

constexpr std::chrono::milliseconds look_at_peers_every{100};
constexpr std::chrono::milliseconds longest_silence{3000};
constexpr std::chrono::milliseconds lingering{250};

bool is_pair(CommKind kind) { return kind == CommKind::send || kind == CommKind::recv; }

}  // namespace

GroupMember::GroupMember(const CommGroup& group, const ContextSource& context, const Settings& settings)
    : name_(group.name.view()),
      rank_(group.rank),
      size_(group.size),
      library_(group.rank, group.size, settings.tuning),
      farewells_(group.rank, group.size),
      idle_(settings.spin) {
  PRUN_CHECK(size_ >= 1 && rank_ >= 0 && rank_ < size_, name_, ": member ", rank_, " of ", size_);
  if (size_ > most_members)
    throw_error(ErrorCode::unsupported, "comm ucx: group ", name_, " has ", size_, " members; ", most_members,
                " is the limit");
  if (size_ > 1) connect(group, context, settings);
}

void GroupMember::connect(const CommGroup& group, const ContextSource& context, const Settings& settings) {
  PRUN_CHECK(group.exchange != nullptr, name_, ": a group without an exchange");
  const std::vector<Member> members = meet(group, [&] {
    wire_ = std::make_unique<Wire>(context());
    return wire_->address();
  });
  std::vector<Wire::Remote> remotes;
  const ProcessId own = ProcessId::own();
  for (const Member& member : members) {
    Peer& peer = peers_.emplace_back();
    peer.process = member.process;
    peer.watched = settings.shared_memory && own.beside(member.process);
    remotes.push_back({member.address, peer.watched});
  }
  remotes[static_cast<std::size_t>(rank_)].address.clear();
  all_do(group, [&] { wire_->connect(remotes); });
  farewells_.listen(*wire_);
  greet();
  wire_->limit_silence(longest_silence);
}

// Makes every connection now, so that what is wrong with one is known before the first operation.
void GroupMember::greet() {
  std::vector<std::uint8_t> in(static_cast<std::size_t>(size_)), out(in.size());
  const CommOp hello{
      .kind = CommKind::all_to_all, .dtype = DType::u8, .in = in.data(), .out = out.data(), .count = 1};
  start(&hello, 1);
  finish();
  operations_ = bytes_sent_ = bytes_received_ = 0;
}

GroupMember::~GroupMember() {
  if (!wire_) return;
  const bool broken = !failure_.empty() || aborted_ || steps_ > 0;
  if (broken) wire_->give_up();
  for (Run* run : active_)
    for (RunningStep& step : run->steps()) wire_->cancel(step);
  for (std::int32_t i = 0; i < size_; ++i) {
    const Peer& peer = peers_[static_cast<std::size_t>(i)];
    farewells_.to(i) = {collectives_, peer.sends, peer.receives, broken};
  }
  farewells_.say(*wire_);
  if (!failure_.empty()) linger();
  wire_.reset();
}

// Closing connections looks like dying to members that have not noticed the failure yet: this gives them
// time.
void GroupMember::linger() {
  const auto end = std::chrono::steady_clock::now() + lingering;
  while (std::chrono::steady_clock::now() < end)
    if (!wire_->progress()) wire_->sleep(lingering / 10);
}

// ---------------------------------------------------------------- operations

void GroupMember::check_op(const CommOp& op) const {
  PRUN_CHECK(static_cast<int>(op.kind) < comm_kinds, name_, ": no operation of number ",
             static_cast<int>(op.kind));
  if (op.kind == CommKind::barrier) return;
  PRUN_CHECK(op.count >= 0, name_, ": ", name_of(op.kind), " of ", op.count, " elements");
  if (is_pair(op.kind) || op.kind == CommKind::broadcast)
    PRUN_CHECK(op.peer >= 0 && op.peer < size_ && (op.peer != rank_ || !is_pair(op.kind)), name_, ": ",
               name_of(op.kind), " on member ", rank_, " of ", size_, " with member ", op.peer);
  const bool reads = op.kind != CommKind::recv && op.kind != CommKind::broadcast;
  const bool writes = op.kind != CommKind::send;
  PRUN_CHECK(op.count == 0 || ((!reads || op.in) && (!writes || op.out)), name_, ": ", name_of(op.kind),
             " without memory");
}

void GroupMember::prepare(const CommOp* ops, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    check_op(ops[i]);
    const Plan& plan = library_.prepare(ops[i]);
    ready_.reserve(plan.steps.size());
    if (plan.scratch_bytes > 0) scratch_.give_back(scratch_.take(plan.scratch_bytes));
  }
  active_.reserve(1);
}

void GroupMember::start(const CommOp* ops, std::int64_t count) {
  check_health();
  for (std::int64_t i = 0; i < count; ++i) admit(ops[i]);
  run_ready();
}

void GroupMember::admit(const CommOp& op) {
  check_op(op);
  Run& run = library_.take(op);
  if (is_pair(op.kind)) {
    Peer& peer = peers_[static_cast<std::size_t>(op.peer)];
    const std::uint32_t number = op.kind == CommKind::send ? peer.sends++ : peer.receives++;
    run.begin(op, make_tag(Traffic::pair, number), number);
  } else {
    const std::uint32_t number = collectives_++;
    run.begin(op, make_tag(Traffic::collective, number), number);
  }
  steps_ += run.steps().size();
  ready_.reserve(steps_);
  active_.reserve(active_.size() + waiting_.size() + 1);
  // The order is kept: all members take up operations that need scratch in the same order.
  const bool in_turn = waiting_.empty() || run.plan().scratch_bytes == 0;
  if (!in_turn || !launch(run)) waiting_.push_back(&run);
}

bool GroupMember::launch(Run& run) {
  if (run.plan().scratch_bytes > 0) {
    std::byte* scratch = scratch_.take(run.plan().scratch_bytes);
    if (!scratch) return false;
    run.use_scratch(scratch);
  }
  active_.push_back(&run);
  run.add_first(ready_);
  if (run.done()) retire(run);
  return true;
}

void GroupMember::retire(Run& run) {
  ++operations_;
  bytes_sent_ += run.plan().bytes_sent;
  bytes_received_ += run.plan().bytes_received;
  steps_ -= run.steps().size();
  if (run.plan().scratch_bytes > 0) scratch_.give_back(run.address({Buffer::scratch, 0}));
  active_.erase(std::find(active_.begin(), active_.end(), &run));
  library_.give_back(run);
  while (!waiting_.empty() && launch(*waiting_.front())) waiting_.erase(waiting_.begin());
}

void GroupMember::execute(RunningStep& running) {
  const Run& run = *running.run;
  const Step& step = run.plan().steps[static_cast<std::size_t>(running.step)];
  running.listener = this;
  switch (step.action) {
    case Action::send:
      return wire_->post_send(step.peer, add_message(run.tag(), rank_, step.message), run.address(step.from),
                              step.bytes, running);
    case Action::receive:
      return wire_->post_receive(add_message(run.tag(), step.peer, step.message), run.address(step.to),
                                 step.bytes, running);
    case Action::copy:
      std::memmove(run.address(step.to), run.address(step.from), static_cast<std::size_t>(step.bytes));
      return complete(running);
    case Action::combine:
      combine(run.op().dtype, run.op().reduction, run.address(step.from), run.address(step.second),
              run.address(step.to), step.bytes / size_of(run.op().dtype));
      return complete(running);
    case Action::join: return complete(running);
  }
}

void GroupMember::complete(RunningStep& step) { step.run->finish(step, ready_); }

// Steps that become ready meanwhile are taken in the same loop.
void GroupMember::run_ready() {
  for (std::size_t i = 0; i < ready_.size(); ++i) execute(*ready_[i]);
  ready_.clear();
}

void GroupMember::on_done(Transfer& transfer, ucs_status_t status) noexcept {
  RunningStep& step = static_cast<RunningStep&>(transfer);
  if (status == UCS_OK) return complete(step);
  if (bad_status_ != UCS_OK) return;
  bad_status_ = status;
  bad_member_ = step.run->plan().steps[static_cast<std::size_t>(step.step)].peer;
}

void GroupMember::finish() {
  check_health();
  while (steps_ > 0 || !active_.empty()) {
    run_ready();
    for (std::size_t i = active_.size(); i-- > 0;)
      if (i < active_.size() && active_[i]->done()) retire(*active_[i]);
    if (!ready_.empty() || (wire_ && wire_->progress())) {
      idle_.reset();
      continue;
    }
    if (active_.empty()) continue;
    check_health();
    if (!idle_.spin()) rest();
  }
}

// ---------------------------------------------------------------- trouble

void GroupMember::rest() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_peers_ >= look_at_peers_every) {
    looked_at_peers_ = now;
    check_peers();
  }
  wire_->sleep(look_at_peers_every);
}

void GroupMember::check_health() {
  if (aborted_.load(std::memory_order_relaxed))
    throw_error(ErrorCode::comm_failed, "comm ucx: group ", name_, ", member ", rank_, ": aborted");
  if (bad_status_ == UCS_ERR_MESSAGE_TRUNCATED && failure_.empty())
    fail(bad_member_, "sent more than was asked for: the members started different operations");
  if (bad_status_ == UCS_OK && failure_.empty()) return;
  if (failure_.empty()) {
    check_peers();
    fail(bad_member_, std::string("a message failed: ") + ucs_status_string(bad_status_));
  }
  throw_error(ErrorCode::comm_failed, failure_);
}

bool GroupMember::needs(const Run& run, std::int32_t member) const {
  const Farewell& farewell = farewells_.from(member);
  switch (run.op().kind) {
    case CommKind::send: return run.op().peer == member && run.number() >= farewell.received;
    case CommKind::recv: return run.op().peer == member && run.number() >= farewell.sent;
    default: return run.number() >= farewell.collectives;
  }
}

// A farewell may be among messages that arrived and were not looked at; so may what its sender sent before.
void GroupMember::check_peers() {
  for (std::int32_t i = 0; i < size_; ++i) {
    if (i == rank_ || farewells_.has_left(i)) continue;
    const Peer& peer = peers_[static_cast<std::size_t>(i)];
    const bool gone = peer.watched && !peer.process.running();
    const ucs_status_t state = wire_->state_of(i);
    if (!gone && state == UCS_OK) continue;
    while (wire_->progress()) {
    }
    if (farewells_.has_left(i)) continue;
    fail(i, gone ? "its process is gone; the end of its log says why"
                 : std::string("the connection is lost: ") + ucs_status_string(state));
  }
  for (std::int32_t i = 0; i < size_; ++i) {
    if (i == rank_ || !farewells_.has_left(i)) continue;
    // This is not reported at first sight: the member whose death made that one give up is the better news.
    bool& gave_up = peers_[static_cast<std::size_t>(i)].gave_up;
    if (gave_up) fail(i, "it has given up; its own message says why");
    gave_up = farewells_.from(i).failed;
    if (gave_up) continue;
    for (const Run* run : active_)
      if (!run->done() && needs(*run, i)) fail(i, "it left before this operation");
  }
}

void GroupMember::fail(std::int32_t member, const std::string& what) {
  failure_ = "comm ucx: group " + name_ + ", member " + std::to_string(member) + ": " + what;
  throw_error(ErrorCode::comm_failed, failure_);
}

void GroupMember::abort() noexcept {
  aborted_ = true;
  if (wire_) wire_->wake();
}

CommCounters GroupMember::counters() const { return {operations_, bytes_sent_, bytes_received_}; }

}  // namespace prun::ucx

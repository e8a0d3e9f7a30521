// Turns ready steps into messages, copies and sums, and messages that arrive into ready steps.
#include "communicator.hpp"

#include <cstring>

#include "arithmetic.hpp"
#include "check_op.hpp"
#include "meeting.hpp"
#include "tags.hpp"

namespace prun::ucx {
namespace {

constexpr std::chrono::milliseconds look_at_members_every{100};
constexpr std::chrono::milliseconds nap_without_bell{1};
constexpr std::chrono::milliseconds longest_silence{3000};
constexpr std::chrono::milliseconds lingering{250};

}  // namespace

GroupMember::GroupMember(const CommGroup& group, const ContextSource& context, const Settings& settings)
    : name_(group.name.view()),
      rank_(group.rank),
      size_(group.size),
      runs_(group.rank, group.size, settings.tuning),
      members_(group.rank, group.size),
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
    const bool watched = settings.shared_memory && own.beside(member.process);
    members_.add(member.process, watched);
    remotes.push_back({member.address, watched});
  }
  remotes[static_cast<std::size_t>(rank_)].address.clear();
  all_do(group, [&] { wire_->connect(remotes); });
  members_.listen(*wire_);
  greet();
  wire_->limit_silence(longest_silence);
  describe(members, settings.shared_memory);
}

// Where the user does without shared memory, nothing is slower than it need be. What cannot ring is looked at
// often.
void GroupMember::describe(const std::vector<Member>& members, bool shares) {
  Reach reach;
  const ProcessId own = ProcessId::own();
  for (std::int32_t i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const ProcessId& other = members[static_cast<std::size_t>(i)].process;
    Where where = Where::elsewhere;
    if (shares && own.machine == other.machine)
      where = !own.beside(other) ? Where::unseen : own.hears(other) ? Where::here : Where::unheard;
    if (where == Where::unheard) longest_nap_ = nap_without_bell;
    reach.add(where, wire_->lanes_to(i));
  }
  reach_ = reach.line(name_);
}

// Makes every connection now, so that what is wrong with one is known before the first operation.
void GroupMember::greet() {
  std::vector<std::uint8_t> in(static_cast<std::size_t>(size_)), out(in.size());
  const CommOp hello{
      .kind = CommKind::all_to_all, .dtype = DType::u8, .in = in.data(), .out = out.data(), .count = 1};
  start(&hello, 1);
  finish();
  runs_.forget_retired();
}

GroupMember::~GroupMember() {
  if (!wire_) return;
  const bool broken = !failure_.empty() || aborted_ || runs_.has_steps();
  if (broken) wire_->give_up();
  for (Run* run : runs_.active())
    for (RunningStep& step : run->steps()) wire_->cancel(step);
  members_.say_goodbye(*wire_, runs_, broken);
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

void GroupMember::prepare(const CommOp* ops, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    check_op(ops[i], name_, rank_, size_);
    runs_.prepare(ops[i]);
  }
}

void GroupMember::start(const CommOp* ops, std::int64_t count) {
  check_health();
  for (std::int64_t i = 0; i < count; ++i) {
    check_op(ops[i], name_, rank_, size_);
    runs_.add(ops[i]);
  }
  run_ready();
}

void GroupMember::run_ready() {
  runs_.execute_ready([&](RunningStep& step) { execute(step); });
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
      return runs_.complete(running);
    case Action::combine:
      combine(run.op().dtype, run.op().reduction, run.address(step.from), run.address(step.second),
              run.address(step.to), step.bytes / size_of(run.op().dtype));
      return runs_.complete(running);
    case Action::join: return runs_.complete(running);
  }
}

void GroupMember::on_done(Transfer& transfer, ucs_status_t status) noexcept {
  RunningStep& step = static_cast<RunningStep&>(transfer);
  if (status == UCS_OK) return runs_.complete(step);
  if (bad_status_ != UCS_OK) return;
  bad_status_ = status;
  bad_member_ = step.run->plan().steps[static_cast<std::size_t>(step.step)].peer;
}

void GroupMember::finish() {
  check_health();
  while (runs_.has_steps() || !runs_.active().empty()) {
    run_ready();
    runs_.retire_done();
    if (runs_.has_ready() || (wire_ && wire_->progress())) {
      idle_.reset();
      continue;
    }
    if (runs_.active().empty()) continue;
    check_health();
    if (!idle_.spin()) rest();
  }
}

// ---------------------------------------------------------------- trouble

void GroupMember::rest() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_members_ >= look_at_members_every) {
    looked_at_members_ = now;
    check_members();
  }
  wire_->sleep(longest_nap_);
}

void GroupMember::check_health() {
  if (aborted_.load(std::memory_order_relaxed))
    throw_error(ErrorCode::comm_failed, "comm ucx: group ", name_, ", member ", rank_, ": aborted");
  if (bad_status_ == UCS_ERR_MESSAGE_TRUNCATED && failure_.empty())
    fail(bad_member_, "sent more than was asked for: the members started different operations");
  if (bad_status_ == UCS_OK && failure_.empty()) return;
  if (failure_.empty()) {
    check_members();
    fail(bad_member_, std::string("a message failed: ") + ucs_status_string(bad_status_));
  }
  throw_error(ErrorCode::comm_failed, failure_);
}

void GroupMember::check_members() {
  if (const std::optional<Trouble> trouble = members_.look(*wire_, runs_))
    fail(trouble->member, trouble->what);
}

void GroupMember::fail(std::int32_t member, const std::string& what) {
  failure_ = "comm ucx: group " + name_ + ", member " + std::to_string(member) + ": " + what;
  throw_error(ErrorCode::comm_failed, failure_);
}

void GroupMember::abort() noexcept {
  aborted_ = true;
  if (wire_) wire_->wake();
}

}  // namespace prun::ucx

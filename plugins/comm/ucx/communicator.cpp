// Turns ready steps into messages, copies and sums, and messages that arrive into ready steps.
#include "communicator.hpp"

#include <fcntl.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>
#include <cstdarg>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "meeting.hpp"
#include "prun/comm.hpp"
#include "run_queue.hpp"

namespace prun::ucx {
namespace {

// ------------------------------------------------------------------- check op
// Refuses operations that are no operation, lack memory, or name a member that cannot be meant.

bool is_pair(CommKind kind) { return kind == CommKind::send || kind == CommKind::recv; }

// Member `rank` of a group of `size` members is to take part in the operation.
void check_op(const CommOp& op, const std::string& group, std::int32_t rank, std::int32_t size) {
  PRUN_CHECK(static_cast<int>(op.kind) < comm_kinds, group, ": no operation of number ",
             static_cast<int>(op.kind));
  if (op.kind == CommKind::barrier) return;
  PRUN_CHECK(op.count >= 0, group, ": ", name_of(op.kind), " of ", op.count, " elements");
  if (is_pair(op.kind) || op.kind == CommKind::broadcast)
    PRUN_CHECK(op.peer >= 0 && op.peer < size && (op.peer != rank || !is_pair(op.kind)), group, ": ",
               name_of(op.kind), " on member ", rank, " of ", size, " with member ", op.peer);
  const bool reads = op.kind != CommKind::recv && op.kind != CommKind::broadcast;
  const bool writes = op.kind != CommKind::send;
  PRUN_CHECK(op.count == 0 || ((!reads || op.in) && (!writes || op.out)), group, ": ", name_of(op.kind),
             " without memory");
}

// ------------------------------------------------------------------- arithmetic
// Computes the sums and maxima of reductions.
// There is one loop per type and reduction, written so that the compiler makes vector code of it.

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a > b || a != a ? a : b;
    else
      return a > b ? a : b;
  }
};

template <class Operation, class T>
T one(T a, T b) {
  if constexpr (is_half<T>)
    return T(Operation::of(static_cast<float>(a), static_cast<float>(b)));
  else
    return Operation::of(a, b);
}

template <class Operation, class T>
void all(const void* first, const void* second, void* to, std::int64_t elements) {
  const T* a = static_cast<const T*>(first);
  const T* b = static_cast<const T*>(second);
  T* out = static_cast<T*>(to);
  // Operands overlap element by element or not at all.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elements; ++i) out[i] = one<Operation, T>(a[i], b[i]);
}

template <class Operation>
void with(DType dtype, const void* first, const void* second, void* to, std::int64_t elements) {
  switch (dtype) {
    case DType::f64: return all<Operation, double>(first, second, to, elements);
    case DType::f32: return all<Operation, float>(first, second, to, elements);
    case DType::bf16: return all<Operation, bf16>(first, second, to, elements);
    case DType::f16: return all<Operation, f16>(first, second, to, elements);
    case DType::i32: return all<Operation, std::int32_t>(first, second, to, elements);
    case DType::i64: return all<Operation, std::int64_t>(first, second, to, elements);
    case DType::u8: return all<Operation, std::uint8_t>(first, second, to, elements);
    case DType::u16: return all<Operation, std::uint16_t>(first, second, to, elements);
  }
}

// Sets to[i] = first[i] (+) second[i]; `to` may be either of them. 16-bit types are added in float and
// rounded to nearest even; integers wrap; a maximum with a NaN is that NaN.
void combine(DType dtype, Reduction reduction, const void* first, const void* second, void* to,
             std::int64_t elements) {
  if (reduction == Reduction::sum)
    with<Sum>(dtype, first, second, to, elements);
  else
    with<Max>(dtype, first, second, to, elements);
}

// ------------------------------------------------------------------- communicator

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

namespace {

// ------------------------------------------------------------------- chatter
// Sends what UCX has to say to the run's folder: the program that starts ranks names a file there by
// PRUN_UCX_LOG. Where it has not, it goes to standard error in the form of prun's messages: UCX itself would
// print it between a command's output. Who sets UCX_LOG_FILE or UCX_LOG_LEVEL gets it as UCX prints it.

// Makes one write for a line, at the end of a file that all ranks share, or to standard error. UCX calls this
// only for levels that are enabled.
ucs_log_func_rc_t write_down(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  static const char* const name = std::getenv("PRUN_UCX_LOG");
  static const int file =
      name ? ::open(name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
  const int to = file < 0 ? STDERR_FILENO : file;
  const char* const rank = std::getenv("PRUN_RANK");
  char line[1024];
  int size = file < 0 ? std::snprintf(line, sizeof line, "prun: UCX says: %s: ", ucs_log_level_names[level])
                      : std::snprintf(line, sizeof line, "rank %s: %s: ", rank ? rank : "?",
                                      ucs_log_level_names[level]);
  size += std::vsnprintf(line + size, sizeof line - static_cast<std::size_t>(size) - 1, format, arguments);
  if (size > static_cast<int>(sizeof line) - 2) size = sizeof line - 2;
  // It may quote variables of the environment, which hold anything.
  std::replace_if(
      line, line + size, [](char byte) { return (byte >= 0 && byte < ' ') || byte == 0x7f; }, '?');
  line[size++] = '\n';
  const ssize_t written = ::write(to, line, static_cast<std::size_t>(size));
  return written == size ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

__attribute__((constructor)) void take_chatter() {
  if (!std::getenv("UCX_LOG_FILE") && (std::getenv("PRUN_UCX_LOG") || !std::getenv("UCX_LOG_LEVEL")))
    ucs_log_push_handler(&write_down);
}

}  // namespace
}  // namespace prun::ucx

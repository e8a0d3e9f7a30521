// Implements the rank's end: a thread receives, so that a failure is known at once, whatever the rank is
// doing. Rank 0 of a run that others started also holds the server, in a second thread.
#include "launch/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/text.hpp"
#include "base/thread.hpp"
#include "launch/hang_watch.hpp"
#include "launch/rendezvous_server.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- rendezvous

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto goodbye_limit = 10s;
constexpr auto failed_goodbye_limit = 1s;  // limit when the others have been told, or cannot be
constexpr auto late_limit = 5s;            // late ranks may come so long, to be told why the run fails
constexpr auto send_limit = 10s;
constexpr auto answer_slack = 10s;  // time beyond the server's own limit
constexpr std::string_view descriptor_prefix = "fd:";

// Runs rank 0's server in a thread of its own.
class HostedServer {
 public:
  HostedServer(const Identity& identity, const std::string& token, FileDescriptor own_end)
      : server_(identity.world), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    server_.listen(listen_at(identity.master_host, identity.master_port), token);
    server_.adopt(0, std::move(own_end));
    thread_ = start_thread("the rendezvous", [this] { run(); });
  }
  // Destroys the server when rank 0's own end has said goodbye.
  ~HostedServer() {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }

 private:
  void run() {
    ::prctl(PR_SET_NAME, "prun-meeting");
    std::optional<Clock::time_point> left;  // time when rank 0 itself left
    while (!left || !over(*left)) {
      int wait = server_.wait_ms();
      if (left) wait = wait < 0 ? 50 : std::min(wait, 50);
      pollfd entries[2] = {{server_.fd(), POLLIN, 0}, {left ? -1 : wake_.get(), POLLIN, 0}};
      ::poll(entries, 2, wait);
      if (entries[1].revents) left = Clock::now();
      server_.process();
      pass_on_failures();
      mention_wrong_token();
    }
  }

  bool over(Clock::time_point left) const {
    const auto waited = Clock::now() - left;
    if (server_.finished()) return true;
    if (!server_.failed()) return waited >= goodbye_limit;
    return waited >= (server_.all_came() ? failed_goodbye_limit : late_limit);
  }

  // Passes on failures. The first to fail is named once, by the rank that all are connected to. A rank that
  // was lost without having reported is told to all even if no rank waits for it yet.
  void pass_on_failures() {
    std::vector<RankReport> reports = server_.take_reports();
    for (RankReport& lost : server_.take_lost()) reports.push_back(std::move(lost));
    for (const RankReport& report : reports) {
      const std::string text = detail::concat("rank ", report.rank, ": ", report.text);
      if (!told_) std::fprintf(stderr, "prun: the first to fail is %s\n", text.c_str());
      told_ = true;
      server_.fail({ErrorCode::comm_failed, text});
    }
  }

  // Mentions a wrong token at once: the rank that the peer should have been is waited for.
  void mention_wrong_token() {
    if (server_.wrong_token().empty() || mentioned_) return;
    std::fprintf(stderr, "prun: %s\n", server_.wrong_token().c_str());
    mentioned_ = true;
  }

  RendezvousServer server_;
  FileDescriptor wake_;
  bool told_ = false, mentioned_ = false;
  std::thread thread_;
};

}  // namespace

struct Rendezvous::State {
  int rank = 0, world = 1;
  std::string server_name;  // name for messages
  FileDescriptor socket;
  std::unique_ptr<HostedServer> hosted;
  std::thread receiver;

  std::mutex calls;    // allows one call at a time
  std::mutex sending;  // keeps frames whole
  std::mutex mutex;    // guards the members below
  std::condition_variable changed;
  std::optional<std::vector<std::string>> result;
  std::optional<Error> failure;
  std::function<void(const Error&)> handler;
  std::optional<Clock::time_point> told;  // last report that has not been answered yet
  bool leaving = false, ended = false;

  bool send(std::string_view frame, std::chrono::seconds limit);
  void receive_all();
  void take(const Frame& frame);
  void fail(const Error& error);
};

bool Rendezvous::State::send(std::string_view frame, std::chrono::seconds limit) {
  const std::lock_guard whole(sending);
  return send_all(socket.get(), frame, Clock::now() + limit);
}

// ------------------------------------------------------------------- receiving

void Rendezvous::State::fail(const Error& error) {
  std::function<void(const Error&)> call;
  {
    const std::lock_guard lock(mutex);
    if (failure || leaving) return;
    failure = error;
    call = std::exchange(handler, nullptr);
  }
  changed.notify_all();
  if (call) call(error);
}

void Rendezvous::State::take(const Frame& frame) {
  if (frame.type == FrameType::result) {
    auto parts = decode_result(frame.body);
    if (!parts) throw_error(ErrorCode::comm_failed, server_name, " sends a malformed result");
    const std::lock_guard lock(mutex);
    result = std::move(parts);
    changed.notify_all();
    return;
  }
  if (frame.type == FrameType::heard) {
    const std::lock_guard lock(mutex);
    told.reset();
    return;
  }
  const auto failed = frame.type == FrameType::failed ? decode_failure(frame.body) : std::nullopt;
  if (!failed) throw_error(ErrorCode::comm_failed, server_name, " sends a frame that it must not");
  fail(Error(failed->code, printable(failed->text, report_limit)));
}

void Rendezvous::State::receive_all() {
  ::prctl(PR_SET_NAME, "prun-receiver");
  FrameReader frames(answer_limit);
  std::vector<char> buffer(65536);
  try {
    for (;;) {
      pollfd entry{socket.get(), POLLIN, 0};
      ::poll(&entry, 1, -1);
      const ssize_t count = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count == 0 || (count < 0 && errno == ECONNRESET))
        throw_error(ErrorCode::comm_failed, server_name, " is gone");
      if (count < 0)
        throw_error(ErrorCode::comm_failed, server_name,
                    " does not answer any more: its host or the network between is gone (",
                    std::strerror(errno), ")");
      frames.add(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
      while (const auto frame = frames.next()) take(*frame);
    }
  } catch (const Error& error) {
    fail(error);
  }
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

// ------------------------------------------------------------------- connecting

namespace {

FileDescriptor inherited_socket(const std::string& place) {
  int fd = -1;
  const std::string_view number = std::string_view(place).substr(descriptor_prefix.size());
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  int type = 0;
  socklen_t size = sizeof type;
  if (error != std::errc() || end != number.data() + number.size() || fd < 3 ||
      ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
    throw_error(ErrorCode::bad_input, "PRUN_RENDEZVOUS ", in_quotes(place),
                " is no socket of this process; the launcher sets it, it is not inherited further");
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  set_nonblocking(fd);
  return FileDescriptor(fd);
}

[[noreturn]] void refused(Admission verdict, const Identity& identity, const std::string& place) {
  const char* why = "";
  switch (verdict) {
    case Admission::wrong_token: why = "its token is another one; give all ranks the same PRUN_TOKEN"; break;
    case Admission::wrong_world: why = "its number of ranks is another one"; break;
    case Admission::rank_taken:
      why = "that rank has been here already; is another run using this port?";
      break;
    case Admission::welcome: break;
  }
  throw_error(ErrorCode::bad_input, "the rendezvous at ", place, " refuses rank ", identity.rank, " of ",
              identity.world, ": ", why);
}

// Makes one attempt. Returns nothing if another is worth it: no server is there yet, or too many peers pushed
// this one out.
std::optional<FileDescriptor> knock(const Identity& identity, const std::string& token, Deadline deadline) {
  auto socket = connect_to(identity.master_host, identity.master_port, deadline);
  if (!socket) return {};
  const auto greeting = receive(socket->get(), greeting_size, deadline);
  if (!greeting) return {};
  const std::string place = detail::concat(identity.master_host, ":", identity.master_port);
  const std::optional<Digest> server_random = parse_greeting(*greeting);
  if (!server_random)
    throw_error(ErrorCode::bad_input, "what answers at ", place,
                " is no rendezvous of prun; choose another port with "
                "PRUN_MASTER_PORT");
  const Digest random = random_digest();
  if (!send_all(socket->get(), make_hello(token, *server_random, identity.rank, identity.world, random),
                deadline))
    return {};
  const auto answer = receive(socket->get(), verdict_size, deadline);
  if (!answer) return {};
  const auto verdict = check_verdict(*answer, token, *server_random, random, identity.rank);
  if (!verdict) throw_error(ErrorCode::bad_input, "what answers at ", place, " does not know the token");
  if (*verdict != Admission::welcome) refused(*verdict, identity, place);
  return socket;
}

FileDescriptor connect_over_tcp(const Identity& identity, const std::string& token,
                                std::chrono::milliseconds limit) {
  const Deadline deadline = Clock::now() + limit;
  for (auto pause = 20ms; Clock::now() < deadline; pause = std::min(pause * 2, 500ms)) {
    if (auto socket = knock(identity, token, deadline)) return std::move(*socket);
    std::this_thread::sleep_for(pause);
  }
  throw_error(
      ErrorCode::comm_failed, "rank ", identity.rank, " does not reach rank 0 at ", identity.master_host, ":",
      identity.master_port, " within ", static_cast<double>(limit.count()) / 1000.0,
      " s; see that rank 0 runs, or name its host in PRUN_MASTER and a free port in PRUN_MASTER_PORT");
}

}  // namespace

std::unique_ptr<Rendezvous> Rendezvous::connect(const Identity& identity, const Environment& environment,
                                                std::chrono::milliseconds limit) {
  auto state = std::make_unique<State>();
  state->rank = identity.rank;
  state->world = identity.world;
  const std::string place = environment("PRUN_RENDEZVOUS").value_or("");
  if (place.starts_with(descriptor_prefix)) {
    state->server_name = "the launcher";
    state->socket = inherited_socket(place);
  } else if (identity.how == "prun") {
    throw_error(ErrorCode::bad_input, "PRUN_RANK is set, but PRUN_RENDEZVOUS is not; unset PRUN_RANK");
  } else if (identity.rank > 0) {
    state->server_name = "rank 0, which holds the rendezvous,";
    state->socket = connect_over_tcp(identity, token_from_environment(environment), limit);
  } else if (identity.world > 1) {
    auto [mine, servers] = connected_pair();
    set_nonblocking(mine.get());
    state->server_name = "the rendezvous";
    state->hosted =
        std::make_unique<HostedServer>(identity, token_from_environment(environment), std::move(servers));
    state->socket = std::move(mine);
  }
  return std::unique_ptr<Rendezvous>(new Rendezvous(std::move(state)));
}

Rendezvous::Rendezvous(std::unique_ptr<State> state) : state_(std::move(state)) {
  if (state_->socket.is_open())
    state_->receiver = start_thread("the rendezvous", [s = state_.get()] { s->receive_all(); });
}

// The server closes its end when it has read the goodbye; only then is nothing on the way any more.
Rendezvous::~Rendezvous() {
  State& s = *state_;
  if (!s.socket.is_open()) return;
  std::unique_lock lock(s.mutex);
  s.leaving = true;
  lock.unlock();
  s.send(make_frame(FrameType::goodbye, {}), 1s);
  ::shutdown(s.socket.get(), SHUT_WR);
  lock.lock();
  s.changed.wait_for(lock, 1s, [&] { return s.ended; });
  lock.unlock();
  ::shutdown(s.socket.get(), SHUT_RDWR);
  s.receiver.join();
  s.hosted.reset();
}

// ------------------------------------------------------------------- calls

std::vector<std::string> Rendezvous::all_gather(std::string_view channel, std::span<const int> members,
                                                std::string_view mine, std::chrono::milliseconds limit) {
  State& s = *state_;
  PRUN_CHECK(std::count(members.begin(), members.end(), s.rank) == 1, "rank ", s.rank, " in ", channel);
  PRUN_CHECK(channel.size() <= channel_limit && mine.size() <= contribution_limit, mine.size(), " bytes for ",
             channel);
  if (members.size() == 1) return {std::string(mine)};
  const std::lock_guard one(s.calls);
  GatherRequest request;
  request.channel = channel;
  request.members.assign(members.begin(), members.end());
  request.limit_ms = static_cast<std::uint32_t>(std::clamp<long long>(limit.count(), 1, 1'000'000'000));
  request.bytes = mine;
  if (!s.send(make_frame(FrameType::gather, encode(request)), send_limit))
    s.fail(Error(ErrorCode::comm_failed, s.server_name + " does not take what this rank sends"));
  std::unique_lock lock(s.mutex);
  const auto over = [&] { return s.result || s.failure; };
  if (!s.changed.wait_for(lock, limit + answer_slack, over)) {
    lock.unlock();  // for good, since an answer that comes later belongs to no call
    s.fail(Error(ErrorCode::comm_failed,
                 detail::concat(s.server_name, " does not answer in ", in_quotes(channel))));
    lock.lock();
  }
  if (s.failure && !s.result) throw Error(*s.failure);
  std::vector<std::string> parts = std::move(*s.result);
  s.result.reset();
  PRUN_CHECK(parts.size() == members.size(), parts.size(), " parts for ", members.size(), " members");
  return parts;
}

void Rendezvous::report_failure(ErrorCode code, std::string_view message) noexcept {
  try {
    const std::string frame = make_frame(FrameType::report, encode(FailureText{code, std::string(message)}));
    if (state_->socket.is_open()) state_->send(frame, 1s);
  } catch (...) {
    // Memory is exhausted; the rank's end reports the rest.
  }
}

void Rendezvous::tell(const FlightReport& report) noexcept {
  State& s = *state_;
  if (!s.socket.is_open()) return;
  try {
    const std::string frame = make_frame(FrameType::flight, encode(report));
    {
      const std::lock_guard lock(s.mutex);
      if (s.told || s.failure || s.leaving) return;
      s.told = Clock::now();
    }
    s.send(frame, send_limit);
  } catch (...) {
    // Memory is exhausted; the next report may go through.
  }
}

std::chrono::milliseconds Rendezvous::unanswered() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->told) return {};
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *state_->told);
}

void Rendezvous::give_up(const Error& why) { state_->fail(why); }

void Rendezvous::on_failure(std::function<void(const Error&)> handler) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (!s.failure) {
    s.handler = std::move(handler);
    return;
  }
  const Error error = *s.failure;
  lock.unlock();
  handler(error);
}

namespace {

// ------------------------------------------------------------------- session

// Opens the inherited record, and closes the descriptor: the mapping is enough.
std::unique_ptr<FlightRecorder> inherited_record(const std::string& text) {
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc() || end != text.data() + text.size() || fd < 3)
    throw_error(ErrorCode::bad_input, "PRUN_FLIGHT_FD ", in_quotes(text),
                " is no descriptor; the launcher sets it, do not set it yourself");
  auto recorder = std::make_unique<FlightRecorder>(fd);
  FileDescriptor close(fd);
  return recorder;
}

}  // namespace

std::unique_ptr<Session> Session::join(const Environment& environment) {
  const std::optional<Identity> identity = identity_from_environment(environment);
  if (!identity) return nullptr;
  std::unique_ptr<Session> session(new Session);
  session->identity_ = *identity;
  ::prctl(PR_SET_NAME, rank_title(identity->rank, identity->world).c_str());
  const std::optional<std::string> record = environment("PRUN_FLIGHT_FD");
  session->flight_ =
      record && identity->how == "prun" ? inherited_record(*record) : std::make_unique<FlightRecorder>();
  session->rendezvous_ = Rendezvous::connect(*identity, environment);
  return session;
}

namespace {

// ------------------------------------------------------------------- heartbeat

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto time_to_end = 2s;

FlightReport report_of(FlightSnapshot flight, std::chrono::milliseconds limit) {
  const std::int64_t now = flight_now_ns();
  FlightReport report;
  report.limit_ms = static_cast<std::uint32_t>(limit.count());
  report.doing = describe_flight(flight, now);
  if (flight.saved_ns > 0) report.saved_ns = std::max<std::int64_t>(0, now - flight.saved_ns);
  if (flight.stands_ns > 0) report.stands_ns = std::max<std::int64_t>(0, now - flight.stands_ns);
  report.communicators = std::move(flight.communicators);
  for (FlightCommunicator& communicator : report.communicators)
    communicator.entered_ns = std::max<std::int64_t>(0, now - communicator.entered_ns);
  return report;
}

}  // namespace

Heartbeat::Heartbeat(Session& session, std::chrono::milliseconds limit,
                     std::function<std::optional<Error>()> failed, std::function<bool()> stops)
    : session_(session),
      limit_(limit),
      failed_(std::move(failed)),
      stops_(std::move(stops)),
      thread_(start_thread("the heartbeat", [this] { run(); })) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Heartbeat::run() {
  ::prctl(PR_SET_NAME, "prun-heartbeat");
  std::optional<Clock::time_point> failed_at;
  std::unique_lock lock(mutex_);
  do {
    const std::optional<Error> why = failed_();
    if (!why) {
      tell();
      continue;
    }
    if (!failed_at) failed_at = Clock::now();
    if (why->code() == ErrorCode::hang && Clock::now() - *failed_at >= time_to_end) end_process(*why);
  } while (!changed_.wait_for(lock, heartbeat_interval(limit_), [this] { return over_; }));
}

void Heartbeat::tell() {
  FlightSnapshot flight = session_.flight().snapshot();
  check_rendezvous(flight);
  FlightReport report = report_of(std::move(flight), limit_);
  report.stops = stops_();
  session_.rendezvous().tell(report);
}

void Heartbeat::check_rendezvous(const FlightSnapshot& flight) {
  if (limit_ == 0ms || session_.rendezvous().unanswered() < longest_silence(limit_)) return;
  const auto waits = long_wait(flight, session_.identity().rank, flight_now_ns(), limit_);
  if (waits)
    session_.rendezvous().give_up(
        Error(ErrorCode::hang, detail::concat("rank 0 ", silent_text, " and holds up ", *waits)));
}

void Heartbeat::end_process(const Error& why) const {
  std::fprintf(stderr, "prun: rank %d: %s; this rank does not end by itself\n", session_.identity().rank,
               why.what());
  ::_exit(exit_code(ErrorCode::hang));
}

}  // namespace prun

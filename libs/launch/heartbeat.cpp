#include "launch/heartbeat.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/thread.hpp"
#include "launch/remote_watch.hpp"

namespace prun {
namespace {

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

#include "launch/session.hpp"

#include <fcntl.h>
#include <sys/prctl.h>

#include <charconv>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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

}  // namespace prun

#include "notify_observer.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "prun/error.hpp"

extern char** environ;

namespace prun::notify {

namespace {

// Each line is an event, a step, a loss and a message, with a unit separator between them. Where the lines
// end without a last word, the process has died. The shell goes on as a child of its own and ends at once, so
// that nobody is left to wait for it.
constexpr const char* script = R"sh(
exec 3<&0
{
  separator=$(printf '\037')
  ended=
  while IFS="$separator" read -r PRUN_EVENT PRUN_STEP PRUN_LOSS PRUN_MESSAGE; do
    export PRUN_EVENT PRUN_STEP PRUN_LOSS PRUN_MESSAGE
    ended=yes
    /bin/sh -c "$PRUN_COMMAND" </dev/null 3<&-
  done
  if [ -z "$ended" ]; then
    PRUN_EVENT=died PRUN_STEP= PRUN_LOSS= PRUN_MESSAGE='the process of the first rank ended without a word' \
      /bin/sh -c "$PRUN_COMMAND" </dev/null 3<&-
  fi
} <&3 &
)sh";

constexpr char separator = '\037';

std::string number(double value) {
  std::array<char, 32> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

// Puts a text on one line, whatever it holds.
std::string on_a_line(std::string_view text) {
  constexpr std::size_t longest = 2000;
  std::string line(text.substr(0, longest));
  for (char& letter : line)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = ' ';
  return line;
}

std::vector<std::string> variables(const RunInfo& info, const std::string& command) {
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at)
    if (!std::string_view(*at).starts_with("PRUN_")) all.emplace_back(*at);
  all.push_back("PRUN_COMMAND=" + command);
  all.push_back("PRUN_NAME=" + on_a_line(info.name.view()));
  all.push_back("PRUN_FOLDER=" + on_a_line(info.folder.view()));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Starts a shell: it has its word as standard input, writes the output of commands to a file of the run's
// folder, has a session of its own, so that what ends the run does not end it, and no signal held back.
class Start {
 public:
  Start(int word, const std::string& log) {
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawn_file_actions_adddup2(&files_, word, 0);
    ::posix_spawn_file_actions_addopen(&files_, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW,
                                       0666);
    ::posix_spawn_file_actions_adddup2(&files_, 1, 2);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Start() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&files_);
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  int run(pid_t* pid, char* const* arguments, char* const* environment) const {
    return ::posix_spawn(pid, arguments[0], &files_, &attributes_, arguments, environment);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

NotifyObserver::~NotifyObserver() {
  if (word_ >= 0) ::close(word_);
}

void NotifyObserver::start(const RunInfo& info) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw_error(ErrorCode::unsupported, "notify: no socket can be made (", std::strerror(errno), ")");
  word_ = ends[0];
  const std::string folder(info.folder.view());
  std::vector<std::string> words = {"/bin/sh", "-c", script}, environment = variables(info, command_);
  pid_t shell = -1;
  const Start start(ends[1], folder.empty() ? "/dev/null" : folder + "/notify.log");
  const int error = start.run(&shell, pointers(words).data(), pointers(environment).data());
  ::close(ends[1]);
  if (error != 0)
    throw_error(ErrorCode::unsupported, "notify: /bin/sh cannot be started (", std::strerror(error), ")");
  while (::waitpid(shell, nullptr, 0) < 0 && errno == EINTR) continue;
}

void NotifyObserver::step(const StepInfo& info) {
  step_ = info.step;
  loss_ = info.loss;
}

// A line that finds no room, or no reader, is lost: the run goes on.
void NotifyObserver::tell(std::string_view event, std::string_view message) const {
  if (word_ < 0) return;
  std::string line(event);
  for (const std::string& part : {std::to_string(step_), number(loss_), on_a_line(message)})
    line += separator + part;
  line += '\n';
  (void)::send(word_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void NotifyObserver::event(EventKind kind, std::string_view message) {
  if (kind == EventKind::failed) tell("failed", message);
  if (kind != EventKind::stopped) return;
  stopped_ = true;
  tell("stopped", message);
}

void NotifyObserver::finish(const FinishInfo&) {
  if (!stopped_) tell("finished", "");
}

}  // namespace prun::notify

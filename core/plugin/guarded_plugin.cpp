#include "plugin/guarded_plugin.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- in plugin
// Implements the thread's marker, and the code that reads it when the process ends. Handlers write with
// write(2) alone. Other threads read a copy of it, in a place that the thread has taken for as long as it
// lives.

constinit thread_local const InPlugin* innermost = nullptr;

struct Place {
  std::atomic<bool> taken{false};
  std::atomic<std::uint64_t> number{0};  // number of the call; 0: the thread is in none
  std::atomic<const char*> plugin{nullptr}, where{nullptr};
};
constinit std::array<Place, 256> places;
constinit std::atomic<std::uint64_t> calls_so_far{0};

Place* take_place() {
  for (Place& place : places)
    if (!place.taken.load(std::memory_order_relaxed) && !place.taken.exchange(true)) return &place;
  return nullptr;
}

struct OwnPlace {
  Place* const place = take_place();
  ~OwnPlace() {
    if (place) place->taken.store(false);
  }
};

// Shows other threads which call this one is in.
void show(const InPlugin* call) {
  thread_local const OwnPlace own;
  if (!own.place) return;
  own.place->number.store(0, std::memory_order_relaxed);
  if (!call) return;
  own.place->plugin.store(call->plugin(), std::memory_order_release);
  own.place->where.store(call->where(), std::memory_order_release);
  own.place->number.store(call->number(), std::memory_order_release);
}

// Returns the depth of a call that is made within the given one, or outside all.
std::uint64_t depth_within(const InPlugin* call) {
  return std::min<std::size_t>(call ? depth_of(call->number()) + 1 : 1, 255);
}

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Holds what handlers need, since they get no arguments.
struct Before {
  std::array<struct sigaction, std::size(signals)> actions{};
  std::terminate_handler terminate = nullptr;
  bool watching = false;
};
constinit Before before;

void write_text(const char* text) {
  for (std::size_t left = std::strlen(text); left > 0;) {
    const ssize_t count = ::write(STDERR_FILENO, text, left);
    if (count <= 0) return;
    text += count;
    left -= static_cast<std::size_t>(count);
  }
}

// Writes a line such as "prun: strategy plugin 'x' ended prun with exit() in apply(); ...".
void name_plugin(const char* how, const char* detail) {
  const char* const parts[] = {"prun: ",
                               innermost->plugin(),
                               " ended prun ",
                               how,
                               detail,
                               " ",
                               innermost->where(),
                               "; mend the plugin or leave it out of the recipe\n"};
  for (const char* part : parts) write_text(part);
  innermost = nullptr;  // reported once, whatever follows
}

// Handles a signal: it comes again, with the handler from before.
void on_signal(int signal, siginfo_t* info, void*) {
  if (innermost) {
    const char* const name = ::sigabbrev_np(signal);
    name_plugin("with SIG", name ? name : "?");
  }
  for (std::size_t i = 0; i < std::size(signals); ++i)
    if (signals[i] == signal) ::sigaction(signal, &before.actions[i], nullptr);
  if (info->si_code <= 0) ::raise(signal);  // a fault comes again by its instruction
}

void on_terminate() {
  if (innermost) {
    try {
      if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
      name_plugin("with terminate()", "");
    } catch (const std::exception& error) {
      name_plugin("with an exception that nobody catches: ", error.what());
    } catch (...) {
      name_plugin("with an exception that nobody catches", "");
    }
    std::abort();
  }
  if (before.terminate) before.terminate();
  std::abort();
}

// Handles exit(): only main() ends prun, and that when the watch is over.
void on_exit() {
  if (!before.watching) return;
  if (innermost)
    name_plugin("with exit()", "");
  else
    write_text("prun: a library or a thread of a plugin ended prun with exit(); mend it\n");
  ::_exit(exit_code(ErrorCode::internal));
}

}  // namespace

InPlugin::InPlugin(const char* plugin, const char* where) noexcept
    : plugin_(plugin),
      where_(where),
      before_(innermost),
      number_((calls_so_far.fetch_add(1, std::memory_order_relaxed) + 1) << 8 | depth_within(innermost)) {
  innermost = this;
  show(this);
}
InPlugin::~InPlugin() {
  innermost = before_;
  show(before_);
}
const InPlugin* InPlugin::current() noexcept { return innermost; }

std::vector<std::uint64_t> calls_into_plugins() {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(places.size());
  for (const Place& place : places) numbers.push_back(place.number.load(std::memory_order_acquire));
  return numbers;
}

std::optional<PluginAndWhere> call_into_plugin(std::size_t place, std::uint64_t number) {
  const Place& at = places.at(place);
  const char *const plugin = at.plugin.load(), *const where = at.where.load();
  if (at.number.load() != number) return {};
  return PluginAndWhere{plugin, where};
}

UntimelyEndWatch::UntimelyEndWatch() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < std::size(signals); ++i) ::sigaction(signals[i], &action, &before.actions[i]);
  before.terminate = std::set_terminate(on_terminate);
  before.watching = true;
  std::atexit(on_exit);
  std::at_quick_exit(on_exit);
}

UntimelyEndWatch::~UntimelyEndWatch() { before.watching = false; }

// ------------------------------------------------------------------- guarded plugin

Status under_name(const std::string& plugin, const Status& status) noexcept {
  const std::string_view message(status.message, ::strnlen(status.message, sizeof status.message));
  return Status::failure(status.code, detail::concat(plugin, ": ", message));
}

namespace {

// ------------------------------------------------------------------- plugin lines
// Keeps lines for the whole process: libraries are the process's, so what they log is too.

struct Lines {
  std::mutex mutex;
  bool collected = false;
  std::vector<std::string> list;
  bool others_tell = false;
  std::set<std::string> of_applying, of_opening;  // lines that were reported
};

Lines& lines() {
  static Lines all;
  return all;
}

thread_local int unsaid = 0;  // number of living OpenedUnsaid of this thread

void print(const std::string& line) { std::fprintf(stderr, "prun: %s\n", line.c_str()); }

bool is_called(const char* where) {
  const InPlugin* const call = InPlugin::current();
  return call && std::string_view(call->where()) == where;
}

// Says whether a line was reported before: strategies are applied often, and a set is opened to train on it
// and to validate on another part of it.
bool is_stated_elsewhere(Lines& all, const std::string& line) {
  if (is_called(in_apply)) return all.others_tell || !all.of_applying.insert(line).second;
  return is_called(in_open) && (unsaid > 0 || !all.of_opening.insert(line).second);
}

void log(const PluginDescriptor* from, Text message) {
  constexpr std::size_t longest = 4096;
  const std::string line = detail::concat(from->kind.view(), " plugin '", from->name.view(),
                                          "': ", printable(message.view(), longest));
  Lines& all = lines();
  const std::scoped_lock lock(all.mutex);
  if (is_stated_elsewhere(all, line)) return;
  if (all.collected)
    all.list.push_back(line);
  else
    print(line);
}

constexpr HostApi api{sizeof(HostApi), plugin_epoch, &log};

void collect(bool on) {
  const std::scoped_lock lock(lines().mutex);
  lines().collected = on;
  lines().of_opening.clear();
}

}  // namespace

void leave_applying_to_others() {
  const std::scoped_lock lock(lines().mutex);
  lines().others_tell = true;
}

OpenedUnsaid::OpenedUnsaid() { ++unsaid; }
OpenedUnsaid::~OpenedUnsaid() { --unsaid; }

const HostApi& host_api() { return api; }

PluginLines::PluginLines() { collect(true); }

PluginLines::~PluginLines() {
  for (const std::string& line : take()) print(line);
  collect(false);
}

std::vector<std::string> PluginLines::take() {
  const std::scoped_lock lock(lines().mutex);
  return std::exchange(lines().list, {});
}

}  // namespace prun

// Keeps lines for the whole process: libraries are the process's, so what they log is too.
#include "plugin/plugin_lines.hpp"

#include <cstdio>
#include <mutex>
#include <set>

#include "base/text.hpp"
#include "plugin/in_plugin.hpp"

namespace prun {
namespace {

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

// Libraries are the process's, so what they say is too.
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
  std::set<std::string> of_applying;  // that were told
};

Lines& lines() {
  static Lines all;
  return all;
}

void print(const std::string& line) { std::fprintf(stderr, "prun: %s\n", line.c_str()); }

bool is_applied() {
  const InPlugin* const call = InPlugin::current();
  return call && std::string_view(call->where()) == in_apply;
}

void log(const PluginDescriptor* from, Text message) {
  constexpr std::size_t longest = 4096;
  const std::string line = detail::concat(from->kind.view(), " plugin '", from->name.view(),
                                          "': ", printable(message.view(), longest));
  Lines& all = lines();
  const std::scoped_lock lock(all.mutex);
  if (is_applied() && (all.others_tell || !all.of_applying.insert(line).second)) return;
  if (all.collected)
    all.list.push_back(line);
  else
    print(line);
}

constexpr HostApi api{sizeof(HostApi), plugin_epoch, &log};

}  // namespace

void leave_applying_to_others() {
  const std::scoped_lock lock(lines().mutex);
  lines().others_tell = true;
}

const HostApi& host_api() { return api; }

PluginLines::PluginLines() {
  const std::scoped_lock lock(lines().mutex);
  lines().collected = true;
}

PluginLines::~PluginLines() {
  for (const std::string& line : take()) print(line);
  const std::scoped_lock lock(lines().mutex);
  lines().collected = false;
}

std::vector<std::string> PluginLines::take() {
  const std::scoped_lock lock(lines().mutex);
  return std::exchange(lines().list, {});
}

}  // namespace prun

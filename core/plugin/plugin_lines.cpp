// Libraries are the process's, so what they say is too.
#include "plugin/plugin_lines.hpp"

#include <cstdio>
#include <mutex>

#include "base/text.hpp"

namespace prun {
namespace {

struct Lines {
  std::mutex mutex;
  bool collected = false;
  std::vector<std::string> list;
};

Lines& lines() {
  static Lines all;
  return all;
}

void print(const std::string& line) { std::fprintf(stderr, "prun: %s\n", line.c_str()); }

void log(const PluginDescriptor* from, Text message) {
  constexpr std::size_t longest = 4096;
  const std::string line = detail::concat(from->kind.view(), " plugin '", from->name.view(),
                                          "': ", printable(message.view(), longest));
  Lines& all = lines();
  const std::scoped_lock lock(all.mutex);
  if (all.collected)
    all.list.push_back(line);
  else
    print(line);
}

constexpr HostApi api{sizeof(HostApi), plugin_epoch, &log};

}  // namespace

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

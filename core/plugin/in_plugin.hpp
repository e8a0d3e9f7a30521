// Tracks which plugin's code a thread runs. A plugin that ends the process is named: with exit(), by a
// signal, or by an uncaught exception.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace prun {

inline constexpr const char* in_apply = "in apply()";  // place of a strategy's call
inline constexpr const char* in_open = "in open()";    // place of a data plugin's call

class InPlugin {
 public:
  // Takes texts such as "strategy plugin 'zero'", "in apply()"; both must outlive it.
  InPlugin(const char* plugin, const char* where) noexcept;
  ~InPlugin();
  InPlugin(const InPlugin&) = delete;
  InPlugin& operator=(const InPlugin&) = delete;

  // Returns the call of this thread, or null if it runs no plugin's code.
  static const InPlugin* current() noexcept;
  const char* plugin() const noexcept { return plugin_; }
  const char* where() const noexcept { return where_; }
  // Returns a number that no other call of the process has; depth_of() it is how many calls the thread is in.
  std::uint64_t number() const noexcept { return number_; }

 private:
  const char* plugin_;
  const char* where_;
  const InPlugin* before_;
  const std::uint64_t number_;
};

// Returns the depth: the outermost call has depth 1. Depths of 255 and more are all 255.
constexpr std::size_t depth_of(std::uint64_t number) { return number & 0xff; }

// Returns the innermost calls into plugins that threads are in, by place: their numbers, or 0. With more than
// 256 threads, some have no place.
std::vector<std::uint64_t> calls_into_plugins();

struct PluginAndWhere {
  std::string plugin, where;
};
// Describes the call with that number; returns nothing if it has ended, or another is within it.
std::optional<PluginAndWhere> call_into_plugin(std::size_t place, std::uint64_t number);

// Ensures, while it lives, that the process cannot end in a plugin's code without a sentence on stderr and an
// exit code that says so. A process has one, in main().
class UntimelyEndWatch {
 public:
  UntimelyEndWatch();
  ~UntimelyEndWatch();
  UntimelyEndWatch(const UntimelyEndWatch&) = delete;
  UntimelyEndWatch& operator=(const UntimelyEndWatch&) = delete;
};

}  // namespace prun

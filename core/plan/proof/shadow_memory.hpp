// Remembers of each byte what it holds, who wrote that and who has read it since; the proof of a plan replays
// steps over it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/arena.hpp"
#include "plan/proof/content.hpp"
#include "plan/proof/queue_clocks.hpp"

namespace prun {

// It throws an Error that names the op and the content. Bytes that nothing has written hold nothing.
class ShadowMemory {
 public:
  // Describes consecutive bytes that were written at once and read alike.
  struct Stretch {
    std::int64_t end = 0;
    Content content;
    When written;
    std::vector<When> reads;  // the latest of each queue since it was written: the earlier ones are before it
  };

  // Whoever reads or writes is the call at hand of `clocks`. `describe` says in words what bytes hold.
  ShadowMemory(const Layout& layout, const QueueClocks& clocks,
               std::function<std::string(const Content&)> describe)
      : layout_(layout), clocks_(clocks), describe_(std::move(describe)) {}

  // Puts what was there before the first step.
  void put(std::int64_t at, std::int64_t size, const Content& content);

  // All of the bytes must hold that content, of such a version, which a call wrote that is known to be done.
  // Returns the oldest version found.
  std::int64_t read(std::int64_t at, std::int64_t size, const Content& content, const Versions& versions,
                    std::string_view op);

  // All who wrote or read what was there must be known to be done, and the bytes must be the layout's.
  void write(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // None of the bytes may hold that content in that version: a sum begins there.
  void check_begins(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // What the layout does not keep from step to step, others may have overwritten.
  void forget_what_is_not_kept();

  // Returns stretches by the address that each begins at.
  const std::map<std::int64_t, Stretch>& stretches() const { return stretches_; }

 private:
  using Stretches = std::map<std::int64_t, Stretch>;

  void assign(std::int64_t at, std::int64_t size, const Content& content, const When& when);
  void check_version(const Content& found, const Versions& wanted, std::string_view op) const;
  Stretches::iterator stretches_in(std::int64_t begin, std::int64_t end);
  void split(std::int64_t at);

  const Layout& layout_;
  const QueueClocks& clocks_;
  std::function<std::string(const Content&)> describe_;
  Stretches stretches_;
};

}  // namespace prun

// Remembers of each byte what it holds, which call wrote that and which calls have read it since; the proof
// of a plan replays steps over it.
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

// Checks each access, and throws an Error that names the op and the content. Bytes that nothing has written
// hold nothing.
class ShadowMemory {
 public:
  // Describes consecutive bytes that were written at once and read alike.
  struct Stretch {
    std::int64_t end = 0;
    Content content;
    When written;
    std::vector<When> reads;  // latest read of each queue since the write: earlier ones are before it
  };

  // The reader or writer is the call at hand of `clocks`. `describe` says in words what bytes hold.
  ShadowMemory(const Layout& layout, const QueueClocks& clocks,
               std::function<std::string(const Content&)> describe)
      : layout_(layout), clocks_(clocks), describe_(std::move(describe)) {}

  // Puts what was there before the first step.
  void put(std::int64_t at, std::int64_t size, const Content& content);

  // Checks that all of the bytes hold that content, in such a version, written by a call that is known to be
  // done. Returns the oldest version found.
  std::int64_t read(std::int64_t at, std::int64_t size, const Content& content, const Versions& versions,
                    std::string_view op);

  // Checks that all calls that wrote or read these bytes are known to be done, and that the bytes are the
  // layout's.
  void write(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // Checks that none of the bytes holds that content in that version: a sum begins there.
  void check_begins(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // Forgets what the layout does not keep from step to step: others may have overwritten it.
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

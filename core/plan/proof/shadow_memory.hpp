// Remembers for each byte what it holds, which call wrote it, and which calls have read it since. The proof
// of a plan replays steps over it. Example: microbatch 1's forward writes into a slot that microbatch 0's
// backward has read: allowed only if that backward is known to be done.
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

// Throws an Error that names op and content for a wrong access. Unwritten bytes hold nothing.
class ShadowMemory {
 public:
  // Consecutive bytes written together and read together.
  struct Stretch {
    std::int64_t end = 0;
    Content content;
    When written;
    std::vector<When> reads;  // by queue, since the write
  };

  // The accessing call is the current one of `clocks`. `describe` names contents.
  ShadowMemory(const Layout& layout, const QueueClocks& clocks,
               std::function<std::string(const Content&)> describe)
      : layout_(layout), clocks_(clocks), describe_(std::move(describe)) {}

  // Contents before the first step.
  void put(std::int64_t at, std::int64_t size, const Content& content);

  // All bytes must hold that content in an accepted version, written by a call known to be done. Returns the
  // oldest version found.
  std::int64_t read(std::int64_t at, std::int64_t size, const Content& content, const Versions& versions,
                    std::string_view op);

  // All calls that wrote or read the bytes must be known to be done, and the bytes must be in the layout.
  void write(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // No byte may hold that content in that version: a sum begins there.
  void check_begins(std::int64_t at, std::int64_t size, const Content& content, std::string_view op);

  // Forgets what the layout does not keep between steps: another program may have overwritten it.
  void forget_what_is_not_kept();

  // Returns them by address.
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

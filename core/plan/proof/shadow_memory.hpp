// Remembers for each byte what it holds, which call wrote it, and which calls have read it since. The proof
// of a plan replays steps over it. Example: microbatch 1's forward writes into a slot that microbatch 0's
// backward has read: allowed only if that backward is known to be done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"
#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- queue clocks
// Tracks what is known to be done when a call begins: vector clocks over a plan's queues. Example: queue 1's
// call 3 waits for queue 0's call 5. It then knows that calls 0 to 5 of queue 0 are done, and all that call 5
// knew.

// Position of a call in its queue, over all steps. Negative: before the first step.
struct When {
  std::int32_t queue = -1;
  std::int64_t ticket = 0;
};

// A call knows what its waits and the call before it in the queue knew.
class QueueClocks {
 public:
  // Takes the calls of a step by queue.
  explicit QueueClocks(std::vector<std::int64_t> calls);

  void begin_step(std::int64_t step);
  // Throws an Error if a call waits for one that has not begun.
  void begin_call(std::int32_t queue, std::int32_t position, std::span<const Wait> waits);

  const When& now() const { return now_; }
  bool is_done(const When& earlier) const {
    return earlier.ticket < 0 || clocks_[now_.queue][earlier.queue] >= earlier.ticket;
  }
  // Returns that of this step.
  std::int64_t first_ticket(std::int32_t queue) const { return step_ * calls_[queue]; }
  // Returns it relative to that; all that is older than so many steps is equally long ago.
  std::int64_t relative(const When& when, std::int64_t steps) const {
    return std::max(when.ticket - first_ticket(when.queue), -steps * calls_[when.queue] - 1);
  }

 private:
  using Clock = Numbered<std::int64_t>;  // latest ticket known to be done, by queue

  void join(Clock& clock, const Wait& wait);
  Clock& clock_at(std::int32_t queue, std::int64_t ticket);

  Numbered<std::int64_t> calls_;
  std::int64_t step_ = 0;
  When now_;
  Numbered<Clock> clocks_;             // by queue
  Numbered<Numbered<Clock>> history_;  // by queue and ticket
};

// ------------------------------------------------------------------- content
// States what bytes hold, in the proof of a plan. Example: {value = block.x, instance = 3, microbatch = 1,
// version = 7}: the input of layer 3, microbatch 1, of step 7.

// A value's instance, microbatch and step.
struct Content {
  Id value = none;
  std::int32_t instance = -1;
  std::int32_t microbatch = -1;
  // The step that wrote it; for what updates change, the number of updates.
  std::int64_t version = 0;

  bool same_but_version(const Content& other) const {
    return value == other.value && instance == other.instance && microbatch == other.microbatch;
  }
};

// A value's version counts these.
enum class Counts : std::uint8_t {
  steps,    // it is written in each step
  updates,  // parameters, masters, moments, and their copies
  nothing,  // it does not change, or at unknown times
};

// Versions that a reader accepts.
struct Versions {
  std::int64_t oldest = 0, newest = 0;
  Counts count = Counts::steps;
};

std::string describe(const Program& program, const Content& content);

// ------------------------------------------------------------------- shadow memory

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

// ------------------------------------------------------------------- content versions
// Decides which version of a value a reader must find, and which one a writer leaves. Example: in step 5 an
// update reads version 5 of a parameter and leaves version 6; forward of step 6 must find 6.

class ContentVersions {
 public:
  explicit ContentVersions(const Program& program);

  Counts of(Id value) const { return counts_[value]; }
  bool counts_updates(Id value) const { return of(value) == Counts::updates; }
  // Returns true if the op copies a parameter, or a part of it.
  bool carries_parameters(const Op& op) const;

  // A reader wants the step's own version, except of values that one step hands to the next. An op of an
  // update reads the old version or, after its own earlier ops, the new one. An op that copies parameters may
  // read any version: the op that computes with the copy needs the right one. `delay`: the reader wants a
  // version so many updates old.
  Versions wanted(Id value, std::int64_t step, bool updates, bool carries, std::int64_t delay = 0) const;
  // Returns how many updates old the value is when a step begins.
  std::int64_t delay_of(Id value) const { return program_.value(value).age; }
  // Returns what `step` leaves; for a value that counts updates, after `updates`.
  Content written(Content content, std::int64_t step, std::int64_t updates) const;

 private:
  void find_what_changes(const Op& op);
  void find_copies(const Op& op);
  void find_members(const Bucket& bucket);
  bool is_codes_of_member(Id value) const;
  bool holds_updated(Id value) const;

  const Program& program_;
  std::vector<Counts> counts_;  // by value
};

}  // namespace prun

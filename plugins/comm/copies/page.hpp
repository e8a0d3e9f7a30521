// Shares a page of the host's memory among the members of a group: it holds numbers that GPUs write and
// wait for. As it is the host's, a thread can release all that waits, whatever the GPUs do.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "layout.hpp"

namespace prun::copies {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

// This is more than any number of a message: what waits for one passes.
inline constexpr std::uint64_t released = std::uint64_t{1} << 62;

// Holds what one member knows of the others.
struct MemberWords {
  Word arrived[most_members];  // messages that came from each
  Word freed[most_members];    // messages that each has taken of those sent to it
  Word granted[most_members];  // messages that each lets this member write into its memory
  Word landed[most_members];   // messages that each has written into this member's memory
  Word done[most_members];     // commands that this member's lanes have done, the taking one first
  Word aborted;                // is set once this member has given up
  Word noticed;                // is set once it knows that another has
  Word closed;                 // is set once it has left the others' memory
};

struct Words {
  MemberWords of[most_members];
};

class SharedPage {
 public:
  // Makes a page of zeros in a new file of shared memory.
  SharedPage();
  // Opens the file of that name, which another process made.
  explicit SharedPage(const std::string& name);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  const std::string& name() const { return name_; }
  // Removes the file's name, once all members have opened it.
  void forget_name();
  Words& words() const { return *static_cast<Words*>(memory_); }
  static constexpr std::size_t bytes() { return (sizeof(Words) + 4095) / 4096 * 4096; }

 private:
  void map(int file);

  std::string name_;
  bool named_ = false;
  void* memory_ = nullptr;
};

}  // namespace prun::copies

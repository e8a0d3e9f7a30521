// Has the members of a group tell each other where their memory is, and open it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lanes.hpp"
#include "page.hpp"
#include "wires.hpp"

namespace prun::copies {

// Owns a buffer of this GPU's memory that other processes can open.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

// Holds the memory of all members, as this one reaches it.
class Meeting {
 public:
  // This is collective: where one member fails, all throw and say why.
  // `aborted` says that whoever waits gives up; with `wires` members can tell each other more later.
  Meeting(const CommGroup& group, std::int64_t buffer_bytes, bool wires, const std::atomic<bool>& aborted);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const Reach& reach() const { return reach_; }
  // Returns null where there are none.
  Wires* wires() const { return wires_.get(); }
  // Leaves the others' memory, which they may free then.
  void leave();
  // Lets go of memory that the GPU may still use: it is never freed.
  void abandon();

 private:
  // The other constructor begins with this one: if it throws later, the destructor closes what it opened.
  Meeting() = default;
  struct Card;

  template <class Listen>
  Card make_card(const CommGroup& group, std::int64_t buffer_bytes, Listen listen);
  void open_page(const CommGroup& group, const Card& first);
  void open(const Card& of, std::int32_t member, std::int64_t buffer_bytes);
  void agree(const CommGroup& group, const std::string& problem) const;

  std::unique_ptr<Buffer> own_;
  std::unique_ptr<SharedPage> page_;
  std::unique_ptr<Wires> wires_;
  bool registered_ = false;
  std::vector<void*> opened_;
  Reach reach_;
};

}  // namespace prun::copies

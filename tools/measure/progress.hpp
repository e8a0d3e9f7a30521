// Shows how far a measurement is, and whether other programs disturb it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace prun {

using Say = std::function<void(const std::string& what)>;  // is told what begins

// Says, every few seconds, how many parts that take about as long are done and what the rest will take.
class PartsDone {
 public:
  PartsDone(std::string what, int parts, Say say)
      : what_(std::move(what)), parts_(parts), say_(std::move(say)) {}

  // Counts another part as done.
  void advance();
  // Returns "3 of 16, about 12 s left" after so many seconds.
  static std::string text(int done, int parts, double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  int parts_;
  int done_ = 0;
  Say say_;
  Clock::time_point began_ = Clock::now(), said_ = began_;
};

// Returns how many cores were at work between two texts of /proc/stat; 0 where they do not say it.
double busy_cores(std::string_view before, std::string_view after, double cores);
// Returns a sentence where other programs keep cores of this machine at work right now, while this process
// waits; else it is empty.
std::string busy_note();

}  // namespace prun

// Writes text of the observers without ever holding up the thread that writes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace prun::observer {

// Pipes and terminals may stand still for as long as somebody reads a page or has pressed Ctrl-S: a thread
// writes there, from a buffer with a bound. When the other side has gone, that is said on standard error once
// and nothing is written any more. Into files and the like text goes at once, and none is lost.
class Outlet {
 public:
  // Says whether text written there may have to wait for a reader.
  static bool may_stand_still(int descriptor);

  // The name is for messages. The descriptor stays the caller's.
  Outlet(int descriptor, std::string name);
  ~Outlet();  // settles first
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  // Returns false when there is no room for the text. Throws storage when a file cannot be written.
  bool put(std::string_view text);
  // Says whether nothing is waiting to be written.
  bool idle() const;
  // Waits until all is written, some seconds at most and only once in vain.
  void settle();

 private:
  struct Shared;
  static void write_all(Shared& shared);

  std::shared_ptr<Shared> shared_;  // is also the thread's, which may have to be left behind in its write
  std::thread thread_;              // files have none
  bool gave_up_ = false;
};

}  // namespace prun::observer

// A way out for text that never holds up who writes it: shared by the observers.
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
  // Says whether what is written there may have to wait for a reader.
  static bool may_stand_still(int descriptor);

  // The name is for messages. The descriptor stays the caller's.
  Outlet(int descriptor, std::string name);
  ~Outlet();  // settles
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  // Returns false when there is no room for it. Throws storage when a file cannot be written.
  bool put(std::string_view text);
  // Nothing is waiting to be written.
  bool idle() const;
  // Waits for what is left to be written, some seconds at most and only once in vain.
  void settle();

 private:
  struct Shared;
  static void write_all(Shared& shared);

  std::shared_ptr<Shared> shared_;  // the thread's too, which may have to be left behind in its write
  std::thread thread_;              // none for files
  bool gave_up_ = false;
};

}  // namespace prun::observer

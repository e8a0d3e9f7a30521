// Lets ranks that are threads of one process meet before they can communicate.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "prun/error.hpp"

namespace prun {

class Meetings {
 public:
  // Gathers texts: every member gives one and gets all of them, in the order of the members.
  std::vector<std::string> all_gather(std::string_view channel, std::span<const int> members, int me,
                                      std::string_view mine) {
    std::unique_lock lock(mutex_);
    Round& round = rounds_[{std::string(channel), {members.begin(), members.end()}}];
    changed_.wait(lock, [&] { return given_up_ || round.leaving == 0; });
    give_up_if_asked(channel);
    round.texts[me] = mine;
    const std::size_t size = members.size();
    if (round.texts.size() == size) round.leaving = size;
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_up_ || round.leaving > 0; });
    give_up_if_asked(channel);
    std::vector<std::string> all;
    for (int member : members) all.push_back(round.texts.at(member));
    if (--round.leaving == 0) round.texts.clear();
    changed_.notify_all();
    return all;
  }

  void give_up() {
    const std::scoped_lock lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  struct Round {
    std::map<int, std::string> texts;
    std::size_t leaving = 0;
  };

  void give_up_if_asked(std::string_view channel) const {
    if (given_up_) throw_error(ErrorCode::comm_failed, channel, ": another rank has failed");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, std::vector<int>>, Round> rounds_;
  bool given_up_ = false;
};

}  // namespace prun

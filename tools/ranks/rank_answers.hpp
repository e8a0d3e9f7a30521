// Collects answers of all ranks of a recipe once they have trained some steps: a text each. They are threads
// of this process or, if the device requires it, processes that run the command of this one again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/identity.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// States what each rank does, and which probes observe its queues. Threads share one.
struct Question {
  std::function<std::string(Trainer& trainer)> body;
  Probes probes;  // probes of full steps: no batch grows
};
// Makes the question, once in each process that has ranks, whose devices are told their place on the host.
using MakeQuestion = std::function<Question(LocalPlace place)>;

// Returns the answers, by rank. `command` has the words that this process was started with; without them
// ranks are threads, or refused if they cannot be. A process that is asked must come to answer() with the
// same recipe and question. If its ranks fail, this throws; if they are stopped by a signal, so is this
// process.
std::vector<std::string> ask_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const MakeQuestion& question,
                                   const std::vector<std::string>& command = {});

// Says whether the ranks are processes, if the command is known.
bool ranks_are_processes(const Recipe& recipe, PluginHost& plugins);
// Does the same with processes, whatever the device would allow: as the recipe is trained.
std::vector<std::string> ask_processes(const Recipe& recipe, PluginHost& plugins,
                                       const std::vector<std::string>& command,
                                       Purpose purpose = Purpose::training);

// Says whether this process is a rank that another one asks; the next functions return which, and its exit
// code.
bool is_asked();
std::optional<Identity> asked_rank();
int answer(const Recipe& recipe, const std::vector<SearchPlace>& places, const MakeQuestion& question);

// Serves a question that needs no training: it holds what a process has that is one of the ranks.
struct Member {
  PluginHost& plugins;
  const Membership& membership;
  int rank = 0;
  LocalPlace place;
};
int answer_as_member(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<std::string(const Member& member)>& body);

// Returns which of several ranks this process is that another launcher has started, on one host or many:
// srun, torchrun, mpirun. These ask each other; nothing where this process is none of them.
std::optional<Identity> launched_rank();
// Gives all ranks' answers, by rank, to `take` on the first; returns the exit code.
int answer_each_other(const Recipe& recipe, const std::vector<SearchPlace>& places,
                      const std::function<std::string(const Member& member)>& body,
                      const std::function<void(const std::vector<std::string>& answers)>& take);

}  // namespace prun

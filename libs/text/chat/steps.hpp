// Bounds what a template does and holds, and says what goes wrong with its place.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "chat/functions.hpp"
#include "chat/value.hpp"
#include "prun/error.hpp"

namespace prun::chat {

// Counts the steps of a template, the bytes that it holds, and how deep it is in itself.
class Steps {
 public:
  explicit Steps(const std::string& name) : name_(name) {}

  [[noreturn]] void refuse(int line, const std::string& what) const {
    throw_error(ErrorCode::bad_input, name_, ":", line, ": ", what);
  }
  void count(int line) {
    if (++taken_ > most_steps) refuse(line, "the template takes too many steps");
  }
  // Long values take more than the step that makes them.
  void count_bytes(std::size_t bytes) { taken_ += bytes / bytes_of_step; }
  void hold(int line, std::size_t bytes) {
    if (bytes > most_bytes - held_)
      refuse(line, "the template would hold more than 256 MiB of values; take one that makes less");
    held_ += bytes;
    count_bytes(bytes);
  }
  void release(std::size_t bytes) { held_ -= bytes; }
  // Runs `body`, and reports an error in it with the line.
  template <class Body>
  auto at_line(int line, Body&& body) {
    count(line);
    const Deeper deeper(*this, line);
    try {
      return body();
    } catch (const Trouble& trouble) {
      refuse(line, trouble.what);
    }
  }

 private:
  static constexpr std::size_t most_steps = 2'000'000;
  static constexpr std::size_t bytes_of_step = 64
                                               << 10;  // what is read and copied in the time of about a step
  static constexpr int deepest = 800;

  // Macros may call themselves, each time as deep as they are written.
  class Deeper {
   public:
    Deeper(Steps& steps, int line) : steps_(steps) {
      if (steps_.depth_ == deepest) steps_.refuse(line, "the template goes too deep into itself");
      ++steps_.depth_;
    }
    ~Deeper() { --steps_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Steps& steps_;
  };

  const std::string& name_;
  std::size_t taken_ = 0, held_ = 0;
  int depth_ = 0;
};

// Counts values as held while something is made of them.
class Held {
 public:
  Held(Steps& steps, int line) : steps_(steps), line_(line) {}
  ~Held() { steps_.release(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void add(const Value& value) { add(value.extent().bytes); }
  void add(std::size_t bytes) {
    steps_.hold(line_, bytes);
    bytes_ += bytes;
  }

 private:
  Steps& steps_;
  int line_;
  std::size_t bytes_ = 0;
};

// Sets an entry of a dict that is held.
inline void set_held(Steps& steps, int line, Dict& in, const std::string& name, Value value) {
  steps.hold(line, Dict::bytes_of_entry(name, value));
  steps.release(in.set(name, std::move(value)));
}

// Holds the names of nested blocks, the innermost last. A macro sees its own names and those at the top.
class Scopes {
 public:
  // What is given beforehand counts once a name is set to it again.
  Scopes(const Dict& given, Steps& steps) : given_(given), scopes_(1), steps_(steps) {}

  const Value* find(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > first_;)
      if (const Value* const found = scopes_[i].find(name)) return found;
    const Value* const found = scopes_.front().find(name);
    return found ? found : given_.find(name);
  }
  void set(int line, const std::string& name, Value value) {
    set_held(steps_, line, scopes_.back(), name, std::move(value));
  }
  bool is_at_top() const { return scopes_.size() == 1; }

  // Opens a scope while it lives.
  class Inner {
   public:
    explicit Inner(Scopes& scopes, bool of_macro = false) : scopes_(scopes), first_(scopes.first_) {
      if (of_macro) scopes_.first_ = scopes_.scopes_.size();
      scopes_.scopes_.emplace_back();
    }
    ~Inner() {
      scopes_.steps_.release(scopes_.scopes_.back().extent().bytes);
      scopes_.scopes_.pop_back();
      scopes_.first_ = first_;
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Scopes& scopes_;
    std::size_t first_;
  };

 private:
  const Dict& given_;
  std::deque<Dict> scopes_;
  std::size_t first_ = 0;  // of the macro that is called
  Steps& steps_;
};

}  // namespace prun::chat

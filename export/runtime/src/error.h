// Inside the library what went wrong is thrown, as a Refusal; `Guarded` turns it into a value for the caller.
#ifndef SEQLAB_ERROR_H_
#define SEQLAB_ERROR_H_

#include <exception>
#include <iomanip>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "seqlab/runtime.h"

namespace seqlab {

// What went wrong, in one sentence; without a code it is what the caller gave.
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(const std::string& message, StatusCode code = StatusCode::kInvalidArgument)
      : std::runtime_error(message), code_(code) {}

  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

// A stream that writes numbers the same way whatever locale the host program has set.
inline std::ostringstream ClassicStream() {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  return text;
}

// A sentence of its parts.
template <typename... Parts>
std::string Join(const Parts&... parts) {
  std::ostringstream text = ClassicStream();
  (text << ... << parts);
  return text.str();
}

// "a, b, c".
template <typename Items>
std::string Listed(const Items& items) {
  std::string text;
  for (const auto& item : items) text += Join(text.empty() ? "" : ", ", item);
  return text;
}

// A number as 1.23e-04.
inline std::string Scientific(double number) {
  std::ostringstream text = ClassicStream();
  text << std::scientific << std::setprecision(2) << number;
  return text.str();
}

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw Refusal(Join(parts...));
}

template <typename... Parts>
[[noreturn]] void Refuse(StatusCode code, const Parts&... parts) {
  throw Refusal(Join(parts...), code);
}

// What `run` returns, or what it threw. A Status for what returns nothing.
template <typename Run>
auto Guarded(Run&& run) -> std::conditional_t<std::is_void_v<decltype(run())>, Status, Result<decltype(run())>> {
  try {
    if constexpr (std::is_void_v<decltype(run())>) {
      run();
      return Status();
    } else {
      return run();
    }
  } catch (const Refusal& refusal) {
    return Status(refusal.code(), refusal.what());
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "there is not enough memory");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, error.what());
  } catch (...) {
    return Status(StatusCode::kInternal, "something failed that is no error of the standard library");
  }
}

}  // namespace seqlab

#endif  // SEQLAB_ERROR_H_

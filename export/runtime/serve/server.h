// The HTTP server of `seqlab-run serve`.
#ifndef SEQLAB_SERVE_SERVER_H_
#define SEQLAB_SERVE_SERVER_H_

#include <string>
#include <vector>

#include "seqlab/engine.h"

namespace seqlab::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8000;        // 0 = any that is free
  int connections = 256;  // number of clients that are answered at once
  std::string api_key;    // empty = none is asked for
  bool log = false;       // whether each answer is told on stderr
  EngineOptions engine;
};

// Serves the bundles until SIGTERM or SIGINT, and then answers what it has accepted. SIGHUP opens the bundles anew.
Status Serve(const std::vector<std::string>& folders, const OpenOptions& open, const ServeOptions& options);

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_SERVER_H_

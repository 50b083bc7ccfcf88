#!/bin/sh
# What the cluster tests need besides Python: sshd, network tools, a docker engine, and a terminal that can be typed at.
# Quick when everything is there already; never starts a service.
set -eu
missing=""
for pair in /usr/sbin/sshd=openssh-server /usr/sbin/dockerd=docker.io /usr/sbin/iptables=iptables \
            /usr/sbin/mkfs.ext4=e2fsprogs /sbin/ip=iproute2 /sbin/tc=iproute2 /usr/bin/ping=iputils-ping \
            /usr/bin/containerd=containerd /usr/sbin/runc=runc /usr/bin/tmux=tmux /usr/sbin/cron=cron; do
    file=${pair%%=*}; package=${pair#*=}
    [ -e "$file" ] || [ -e "/usr$file" ] || case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
done
if [ -n "$missing" ]; then
    # No service of these packages may start by itself: the tests start what they need, contained.
    policy=/usr/sbin/policy-rc.d
    made=""
    if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=yes; fi
    trap '[ -z "$made" ] || rm -f $policy' EXIT
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
mkdir -p /run/sshd

#!/bin/sh
# Stands in for E2B's template builder: what it has published that it runs, as root, in every Debian image.  It asks dpkg
# for the packages that it needs, installs the missing ones with apt, arranges systemd, and makes a user who may use sudo.
# The rest of the builder (its kernel, its agent) changes nothing that an image brings.
set -eu

wanted="systemd systemd-sysv openssh-server sudo chrony socat curl ca-certificates fuse3 iptables git nfs-common less
nftables iputils-ping jq iproute2"

. /etc/os-release
test "$ID" = debian

missing=""
for name in $wanted; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $name"
done
echo "missing:$missing"
apt-get -q update
export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
apt-get -qq -o=Dpkg::Use-Pty=0 install -y --no-install-recommends $missing
test -s /etc/ssl/certs/ca-certificates.crt

echo "export SHELL=/bin/bash" > /etc/profile.d/shell.sh
passwd -d root
echo "fs.inotify.max_user_watches=65536" | tee -a /etc/sysctl.conf
for unit in serial-getty@ttyS0 systemd-networkd-wait-online systemd-firstboot chrony-wait systemd-binfmt; do
    systemctl mask "$unit.service"
done
systemctl enable chrony
systemctl enable ssh.service
rm -rf /etc/machine-id
ln -sf /lib/systemd/systemd /usr/sbin/init

useradd -m -s /bin/bash user
usermod -aG sudo user
passwd -d user
echo "user ALL=(ALL:ALL) NOPASSWD: ALL" >> /etc/sudoers
mkdir -p /code
chown -R user:user /home/user
chmod -R 777 /usr/local /code
